"""What one launch of one trial wrote, as it stands in the store: one JSON object per line.

Schema diary (``SCHEMA`` grows by one whenever an older reader would misread a file):

1. First version: one line per launch with the step ends of every worker. Since then, without misleading a reader:
   ``cluster`` of a launch, where the launcher made hosts; ``native`` of a worker in an ablation launch, what the
   framework's own timers say; ``isolation``, what kept others out of the launch's sockets; ``steptime``,
   ``schedule`` and ``environment_variables`` of a launch.
"""

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from steptime.measurements.record_fields import (
    STRICT,
    Count,
    Duration,
    Environment,
    Facts,
    FoundCluster,
    Option,
    Quantity,
    Seconds,
    nothing_to_check,
    record_reader,
)

SCHEMA = 1

Status = Literal["ok", "failed"]


@dataclass(frozen=True)
class WorkerSteps:
    """The steps of one worker in one launch.

    Ends are seconds of the host's monotonic clock: the ends of workers with the same ``host`` can be compared,
    others cannot.
    """

    __pydantic_config__ = STRICT

    rank: Count
    host: str
    warmup_ends_s: list[Seconds]
    origin_s: Seconds
    """End of the step before the first timed one."""
    ends_s: list[Seconds]
    """Ends of the timed steps."""
    loss_first: float | None
    """After the warm-up; None, here and at the end, where it was no number, which JSON cannot write."""
    loss_last: float | None
    facts: Facts
    usage: dict[str, Quantity]
    opened_in_s: Seconds
    """From the start of the process to a session that is ready to step."""
    staleness: dict[str, Count] | None = None
    """How many of this worker's updates were 0, 1, 2, … updates of others late; None where none can be."""


@dataclass(frozen=True)
class Launch:
    """One launch: fresh processes, one line in the trial's ``records.jsonl``."""

    __pydantic_config__ = STRICT

    trial: str
    launch: Count
    """Index among the launches of this trial, from 0."""
    block: Count
    """Index of the randomised block in which it ran; the launches of one block are neighbours in time."""
    status: Status
    reason: str | None
    """Why it failed, in one sentence; None when it did not."""
    started_at: str
    """UTC, ISO 8601."""
    wall_s: Duration
    commands: list[list[str]]
    """The argument list of every process, in the order of their start."""
    environment: Environment
    noise: dict[str, Quantity | None]
    """What else the machine did: see measurements/noise.py; null where the system does not say."""
    flags: list[str] = field(default_factory=list)
    workers: list[WorkerSteps] = field(default_factory=list)
    stderr: dict[str, str] = field(default_factory=dict)
    """The last lines of each process's standard error, for a failed launch."""
    cluster: FoundCluster | None = None
    """None where the launcher made no hosts.
    A model of the launch takes alpha and bandwidth from here, never from what was asked for."""
    isolation: str | None = None
    """What kept others out of the sockets of the launch; None where nothing did, and in older records."""
    steptime: str | None = None
    """The version that ran the launch; None in records from before it was kept."""
    environment_variables: dict[str, str] | None = None
    """What changes speed and was in the environment of the processes on purpose: what the study set, and what of the
    user's shell is passed (``PASSED`` of study/environment_variables.py); None in records from before it was kept."""
    schedule: dict[str, Quantity] | None = None
    """How many steps and seconds the launch was asked for, as in its job; None as above."""

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        return {"schema": SCHEMA, "kind": "launch", **asdict(self)}


_UPDATES = re.compile("[0-9]{1,9}")


def _staleness_counts(launch: Launch) -> None:
    for worker in launch.workers:
        if any(not _UPDATES.fullmatch(late) for late in worker.staleness or {}):
            message = f"workers.{worker.rank}.staleness: a key is no count of updates"
            raise ValueError(message)


read_launch = record_reader(Launch, "launch", _staleness_counts)


@dataclass(frozen=True)
class EquivalenceResult:
    """What the equivalence check found for one framework, strategy and workload."""

    __pydantic_config__ = STRICT

    framework: str
    framework_version: str
    strategy: str
    workload: str
    input_shape: list[Count]
    workers: Count
    repeats: Count
    """Launches that were compared."""
    steps: Count
    """Of the longest launch."""
    parameters: int | None
    parameters_expected: int
    output_shape: list[int] | None
    first_loss_error: float | None
    """Relative, against the reference, with the same weights and the same batch."""
    last_loss_error: float | None
    """Relative, the largest of all rounds behind the first."""
    weight_error: float | None
    """Largest distance of an array of weights from the reference's after any round, relative to its length."""
    update_error: float | None
    """Likewise, but of an array's update in one round, relative to the length of the update."""
    update_rounding: float | None
    """The same of the reference in single precision against itself in double: what no framework can better."""
    passed: bool
    reason: str | None
    """Why it did not pass."""
    options: dict[str, Option] = field(default_factory=dict)
    """Of the framework."""
    environment_variables: dict[str, str] = field(default_factory=dict)
    """That the study set, which may change arithmetic."""
    crashes: Count = 0
    """Runs that a signal ended and that were repeated: a crash is no wrong number, but worth knowing."""
    learning_rate: float | None = None
    """With which all were trained; below the trial's where its own makes the loss grow. None in older records, and
    where the reference failed."""
    gradient_error: float | None = None
    """As ``update_error``, of the gradient of the first step, with what weight decay adds to it. None in older records
    and where workers do not wait for each other."""
    gradient_rounding: float | None = None
    """As ``update_rounding``."""
    rounds: Count = 0
    """Of steps that were compared by themselves, over all launches; 0 in older records."""
    optimizer: str = "sgd"
    """The name of the optimizer that was compared."""

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        return {"schema": SCHEMA, "kind": "equivalence", **asdict(self)}


read_equivalence = record_reader(EquivalenceResult, "equivalence", nothing_to_check)
