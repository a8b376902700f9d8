"""The record of one ablation launch, one line in the trial's ``ablation.jsonl``."""

from dataclasses import asdict, dataclass, field
from typing import Any

from steptime.measurements.records import SCHEMA, Status

PHASES = ("input_wait", "h2d", "forward", "backward", "comm_exposed", "sync_wait", "update", "residual")
"""What sums to the step, in the order in which it is shown; the meanings are in docs/glossary.md."""


@dataclass(frozen=True)
class WorkerAblation:
    """What one worker saw of its steps; seconds everywhere."""

    rank: int
    host: str
    stages: dict[str, list[list[float]]]
    """For each stage of the ablation (worker/session.py), for each block, the durations of its steps.

    All workers have the same stages, blocks and numbers of steps; in `forward`, `backward`, `local` and `input` they
    start every step together, so that the k-th durations of all workers belong together.
    """
    order: list[list[str]]
    """The stages of each block in the order in which they ran."""
    clocks: list[dict[str, float]]
    """Before and after: `at_s` on this worker's clock, `offset_s` to add for worker 0's, `rtt_s` of the comparison."""
    marks: list[str]
    """Phases that the framework itself marks, in their order; empty where it does not."""
    marked: list[list[float]]
    """For each marked step its start and the end of each of `marks`, on this worker's clock."""
    transfers: list[tuple[str, int, float, float]]
    """Pieces exchanged in the marked steps: name, bytes, when ready, when its result was there, on this clock."""
    facts: dict[str, Any]
    native: list[dict[str, dict[str, float]]] = field(default_factory=list)
    """What the framework's own timers say of the marked steps of each block: source, phases, mean seconds of a step.

    Phases are joined by ``" + "`` where a duration covers several; empty where the framework has no timers.
    """


@dataclass(frozen=True)
class AblationLaunch:
    """One ablation launch: fresh processes, one line in the trial's ``ablation.jsonl``."""

    trial: str
    launch: int
    """Index among the ablation launches of this trial, from 0; launches of the same index are neighbours in time."""
    status: Status
    reason: str | None
    started_at: str
    """UTC, ISO 8601."""
    wall_s: float
    environment: dict[str, Any]
    noise: dict[str, float | None]
    flags: list[str] = field(default_factory=list)
    workers: list[WorkerAblation] = field(default_factory=list)
    stderr: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, Any] | None = None
    """As in a timing launch."""

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        return {"schema": SCHEMA, "kind": "ablation", **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "AblationLaunch":
        """Read a line's object; raises KeyError or TypeError when it is none."""
        fields = {name: value for name, value in data.items() if name not in ("schema", "kind")}
        fields["workers"] = [
            WorkerAblation(**{**worker, "transfers": [tuple(piece) for piece in worker["transfers"]]})
            for worker in fields["workers"]
        ]
        return cls(**fields)
