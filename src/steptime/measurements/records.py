"""What one launch of one trial wrote, as it stands in the store: one JSON object per line.

Schema diary (``SCHEMA`` grows by one whenever an older reader would misread a file):

1. First version: one line per launch with the step ends of every worker. Since then, without misleading a reader:
   ``cluster`` of a launch, where the launcher made hosts; ``native`` of a worker in an ablation launch, what the
   framework's own timers say.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = 1

Status = Literal["ok", "failed"]


@dataclass(frozen=True)
class WorkerSteps:
    """The steps of one worker in one launch.

    Ends are seconds of the host's monotonic clock: the ends of workers with the same ``host`` can be compared,
    others cannot.
    """

    rank: int
    host: str
    warmup_ends_s: list[float]
    origin_s: float
    """End of the step before the first timed one."""
    ends_s: list[float]
    """Ends of the timed steps."""
    loss_first: float | None
    """After the warm-up; None, here and at the end, where it was no number, which JSON cannot write."""
    loss_last: float | None
    facts: dict[str, Any]
    usage: dict[str, float]
    opened_in_s: float
    """From the start of the process to a session that is ready to step."""
    staleness: dict[str, int] | None = None
    """How many of this worker's updates were 0, 1, 2, … updates of others late; None where none can be."""


@dataclass(frozen=True)
class Launch:
    """One launch: fresh processes, one line in the trial's ``records.jsonl``."""

    trial: str
    launch: int
    """Index among the launches of this trial, from 0."""
    block: int
    """Index of the randomised block in which it ran; the launches of one block are neighbours in time."""
    status: Status
    reason: str | None
    """Why it failed, in one sentence; None when it did not."""
    started_at: str
    """UTC, ISO 8601."""
    wall_s: float
    commands: list[list[str]]
    """The argument list of every process, in the order of their start."""
    environment: dict[str, Any]
    """Name, kind, interpreter, Python version and versions of the main packages of the framework's environment."""
    noise: dict[str, float | None]
    """What else the machine did: see measurements/noise.py; null where the system does not say."""
    flags: list[str] = field(default_factory=list)
    workers: list[WorkerSteps] = field(default_factory=list)
    stderr: dict[str, str] = field(default_factory=dict)
    """The last lines of each process's standard error, for a failed launch."""
    cluster: dict[str, Any] | None = None
    """The hosts and links that the launcher made, as it found them: see clusters/cluster.py; None where it made none.
    A model of the launch takes alpha and bandwidth from here, never from what was asked for."""

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        return {"schema": SCHEMA, "kind": "launch", **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Launch":
        """Read a line's object; raises KeyError or TypeError when it is none."""
        fields = {name: value for name, value in data.items() if name not in ("schema", "kind")}
        fields["workers"] = [WorkerSteps(**worker) for worker in fields["workers"]]
        return cls(**fields)


@dataclass(frozen=True)
class EquivalenceResult:
    """What the equivalence check found for one framework, strategy and workload."""

    framework: str
    framework_version: str
    strategy: str
    workload: str
    input_shape: list[int]
    workers: int
    repeats: int
    steps: int
    parameters: int | None
    parameters_expected: int
    output_shape: list[int] | None
    first_loss_error: float | None
    """Relative, against the reference, with the same weights and the same batch."""
    last_loss_error: float | None
    """Relative, after the equivalence check's steps."""
    weight_error: float | None
    """Largest distance of a weight from the reference after the last checked step, over all repeats and workers,
    relative to the largest weight of its array; None where nothing is defined (asynchronous strategies)."""
    update_error: float | None
    """Likewise, but of an array's whole update since the initial weights, relative to it."""
    update_rounding: float | None
    """The same of the reference in single precision against itself in double: what no framework can better."""
    passed: bool
    reason: str | None
    """Why it did not pass."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the framework."""
    crashes: int = 0
    """Runs that a signal ended and that were repeated: a crash is no wrong number, but worth knowing."""
    learning_rate: float | None = None
    """With which all were trained; below the trial's where its own makes the loss grow. None in older records, and
    where the reference failed."""

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        return {"schema": SCHEMA, "kind": "equivalence", **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "EquivalenceResult":
        """Read a line's object; raises TypeError when it is none."""
        return cls(**{name: value for name, value in data.items() if name not in ("schema", "kind")})
