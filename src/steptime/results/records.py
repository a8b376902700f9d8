"""The records of timed launches, one line each in their trial's ``records.jsonl``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from steptime.results.clock_marks import StoredMarks
from steptime.results.stored_record import (
    STRICT,
    ClockReadings,
    Count,
    Facts,
    Name,
    Quantity,
    Seconds,
    Staleness,
    StoredRecord,
    TrialLaunch,
    WorkerEvidence,
    nothing_to_check,
    record_reader,
)

StepLoss = tuple[Count, float | None]
DrawnBatch = tuple[Count, Count, Count]
ShortSketches = dict[str, list[Quantity]]


@dataclass(frozen=True)
class StepsAlone:
    """Three steps that a worker took while the others waited, though they do not wait for each other."""

    __pydantic_config__ = STRICT

    batch: Count
    """Number of the last one's batch among those of the worker, from 1."""
    loss: float | None
    """Of the last one."""
    weights: list[ShortSketches | None]
    """Behind each, as in ``WorkerSteps``."""


@dataclass(frozen=True)
class TimedPause:
    """An interruption of a worker's timed steps behind a drawn one, which its ends leave out."""

    __pydantic_config__ = STRICT

    behind: Count
    """Timed steps ahead of it."""
    steps: Count
    """Steps that the worker took in it."""
    loss: float | None
    """Behind the timed step ahead of it; None, like ``weights``, of workers that do not wait for each other."""
    weights: ShortSketches | None
    """Likewise, as in ``WorkerSteps``."""
    alone: StepsAlone | None
    """Of such workers."""
    lasted_s: Seconds = 0.0
    kernel_marks: StoredMarks | None = None
    """What the kernel noted behind it; None if no timed step was left."""


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
    """Ends of the timed steps; behind a pause, less how long it lasted."""
    loss_first: float | None
    """After the warm-up; None, here and at the end, where it was no number, which JSON cannot write."""
    loss_last: float | None
    facts: Facts
    usage: dict[str, Quantity]
    opened_in_s: Seconds
    """From the start of the process to a session that is ready to step."""
    staleness: Staleness | None = None
    """None if no update can be late."""
    losses: list[StepLoss] = field(default_factory=list)
    """Losses behind some steps, which are counted from 1 in the warm-up; like all that follows, empty or None in
    records from before it was kept."""
    samples: Count | None = None
    """Of the last batch, as the network's output has them."""
    batches: list[DrawnBatch] = field(default_factory=list)
    """Number, size and checksum of the indices of some batches; empty if the process did not draw them."""
    drawn: Count | None = None
    """How many batches it drew; None if another process does, or they are synthetic."""
    weights: list[ShortSketches | None] = field(default_factory=list)
    """Short sketches at the end, by array, or behind turns where workers do not wait for each other: the length of the
    weights and of their update since the first, and sums of the update with signs. None of a worker without weights."""
    first_update: ShortSketches | None = None
    """The same behind the first step; None of workers that do not wait for each other."""
    first_turns: list[ShortSketches | None] = field(default_factory=list)
    """The same behind the first steps of such workers, which they took in turn."""
    alone: StepsAlone | None = None
    """What came of the last steps of such a worker, which it took without the others; None in older records."""
    kernel_marks: StoredMarks | None = None
    """What the kernel noted meanwhile, up to a pause; None in records from before it was kept."""
    pause: TimedPause | None = None
    """None if there was none, and in older records."""

    def clock_mistake(self) -> str | None:
        """Return in what the clock contradicts the kernel, or None."""
        if self.kernel_marks is None:
            return None
        place = self.pause.behind if self.pause else len(self.ends_s)
        found = self.kernel_marks.mistake(self.origin_s, self.ends_s[:place])
        if found or self.pause is None or self.pause.kernel_marks is None:
            return found
        return self.pause.kernel_marks.mistake([self.origin_s, *self.ends_s][place], self.ends_s[place:])


@dataclass(frozen=True, kw_only=True)
class Launch(TrialLaunch):
    """One timed launch."""

    kind = "launch"
    written_before: ClassVar = {"trial": "launch", "block": "status", "commands": "environment", "workers": "stderr"}

    block: Count
    """Number of the randomised block in which it ran. The launches of one block are neighbours in time, and ran on one
    site."""
    commands: list[list[str]]
    """The argument list of every process, in the order of their start."""
    workers: list[WorkerSteps] = field(default_factory=list)
    schedule: dict[str, Quantity] | None = None
    """How many steps and seconds the launch was asked for, as in its job; None in records from before it was kept."""
    shared_import: Name | None = None
    """The process that had imported the framework, of which those of the launch are forks; launches of one name share
    its memory layout. None of fresh processes, and in older records."""

    def evidence(self) -> Sequence[WorkerEvidence]:
        return [
            WorkerEvidence(
                rank=worker.rank,
                host=worker.host,
                facts=worker.facts,
                contradicted=worker.clock_mistake(),
                steps=(len(worker.warmup_ends_s), len(worker.ends_s)),
                readings=(
                    ClockReadings(worker.warmup_ends_s),
                    ClockReadings([worker.origin_s, *worker.ends_s], worker.usage.get("wall_s")),
                ),
            )
            for worker in self.workers
        ]


read_launch = record_reader(Launch, nothing_to_check)


_ABSENT = {"reason", "launch", "rank", "place"}
"""Keys of a replay that are left out where they are None."""


@dataclass(frozen=True)
class Replay(StoredRecord):
    """A launch that repeated the training of a trial's timed launches, untimed: their batches, from their weights."""

    kind = "replay"

    trial: str
    """The trial's id."""
    nudge: float
    """By what the learning rate was multiplied: 1, or a number near it, so that what comes of it shows how far rounding
    leads. Of workers that do not wait for each other, whose steps in turn are repeated alone, next to nothing, too."""
    steps: list[Count]
    """Behind which losses and weights were read, counted from 1."""
    losses: list[list[float | None]]
    """Behind each, of each worker."""
    weights: list[ShortSketches | None]
    """Behind each, of the first worker, as in ``WorkerSteps``."""
    batches: list[list[DrawnBatch]]
    """Of each worker, as in ``WorkerSteps``."""
    reason: str | None = None
    """Why it failed, so that ``losses``, ``weights`` and ``batches`` are empty; None of a good one."""
    launch: Count | None = None
    """Of whose last steps without the others it repeats one, from its weights; None of one from the first weights."""
    rank: Count | None = None
    """The worker whose step that is, and whose weights and losses the record has."""
    place: str | None = None
    """Where in the launch that step was: ``pause``, or None behind all others."""

    def to_json(self) -> dict[str, Any]:
        """Return the line's object, which lacks what is None."""
        line = super().to_json()
        return {name: value for name, value in line.items() if name not in _ABSENT or value is not None}


read_replay = record_reader(Replay, nothing_to_check)
