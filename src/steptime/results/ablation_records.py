"""The record of one ablation launch, one line in the trial's ``ablation.jsonl``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from steptime.phases import MARKS, NAMES
from steptime.results.stored_record import (
    STRICT,
    Bytes,
    ClockReadings,
    Count,
    Duration,
    Facts,
    Quantity,
    Seconds,
    TrialLaunch,
    WorkerEvidence,
    record_reader,
)

TOGETHER = " + "
"""Between the names of phases that one duration covers."""


@dataclass(frozen=True)
class WorkerAblation:
    """What one worker saw of its steps; seconds everywhere."""

    __pydantic_config__ = STRICT

    rank: Count
    host: str
    stages: dict[str, list[list[Duration]]]
    """For each stage of the ablation (worker/session.py), for each block, the durations of its steps.

    All workers have the same stages, blocks and numbers of steps; in `forward`, `backward`, `local` and `input` they
    start every step together, so that the k-th durations of all workers belong together.
    """
    order: list[list[str]]
    """The stages of each block in the order in which they ran."""
    clocks: list[dict[str, Seconds]]
    """Before and after: `at_s` on this worker's clock, `offset_s` to add for worker 0's, `rtt_s` of the comparison."""
    marks: list[str]
    """Phases that the framework itself marks, in their order; empty where it does not."""
    marked: list[list[Seconds]]
    """For each marked step its start and the end of each of `marks`, on this worker's clock."""
    transfers: list[tuple[str, Bytes, Seconds, Seconds]]
    """Pieces exchanged in the marked steps: name, bytes, when ready, when its result was there, on this clock."""
    facts: Facts
    native: list[dict[str, dict[str, Duration]]] = field(default_factory=list)
    """What the framework's own timers say of the marked steps of each block: source, phases, mean seconds of a step.

    Phases are joined by ``TOGETHER`` where a duration covers several; empty where the framework has no timers.
    """


@dataclass(frozen=True, kw_only=True)
class AblationLaunch(TrialLaunch):
    """One ablation launch."""

    kind = "ablation"
    written_before: ClassVar = {"trial": "launch", "workers": "stderr", "schedule": "environment_variables"}

    workers: list[WorkerAblation] = field(default_factory=list)
    schedule: dict[str, Quantity] | None = None
    """As in a timed launch."""

    def evidence(self) -> Sequence[WorkerEvidence]:
        return [
            WorkerEvidence(
                rank=worker.rank,
                host=worker.host,
                facts=worker.facts,
                steps=[len(worker.marked)],
                readings=[
                    ClockReadings(
                        [worker.clocks[0]["at_s"], *(row[0] for row in worker.marked), worker.clocks[-1]["at_s"]]
                    )
                ],
                also_read=[
                    *(moment for row in worker.marked for moment in row[1:]),
                    *(moment for _, _, ready_s, there_s in worker.transfers for moment in (ready_s, there_s)),
                ],
                lasted_s=sum(sum(map(sum, blocks)) for blocks in worker.stages.values()),
            )
            for worker in self.workers
        ]


_WITH_WORK = ("step", "local", "backward", "forward")
"""Stages that are divided by."""


_CLOCK = {"at_s", "offset_s", "rtt_s"}


def _parts_fit(launch: AblationLaunch) -> None:
    """Raise ValueError where workers have other stages, blocks or marks than the first, or a step of no length."""
    if launch.status == "ok":
        for worker in launch.workers:
            for mistake in (_stage_mistake(worker, launch.workers[0]), _mark_mistake(worker, launch.workers[0])):
                if mistake:
                    message = f"workers.{worker.rank}.{mistake}"
                    raise ValueError(message)


def _stage_mistake(worker: WorkerAblation, first: WorkerAblation) -> str | None:
    sizes, expected = (
        {name: [len(block) for block in blocks] for name, blocks in each.stages.items()} for each in (worker, first)
    )
    blocks = len(sizes.get("step", []))
    if sizes != expected:
        return "stages: not the stages, blocks and steps of the first worker"
    if not blocks or any(len(each) != blocks or 0 in each for each in sizes.values()):
        return "stages: a stage lacks blocks or steps, or there is no stage of whole steps"
    if any(not min(block) > 0.0 for name in _WITH_WORK for block in worker.stages.get(name, [])):
        return "stages: a step took no time"
    return None if len(worker.native) in (0, blocks) else "native: not one object for each block"


def _mark_mistake(worker: WorkerAblation, first: WorkerAblation) -> str | None:
    if not worker.clocks or any(not clock.keys() >= _CLOCK for clock in worker.clocks):
        return "clocks: no comparison of clocks"
    if worker.marks != [mark for mark in MARKS if mark in worker.marks]:
        return f"marks: not some of {', '.join(MARKS)}, in this order"
    if worker.marks != first.marks or {len(row) for row in worker.marked} - {len(worker.marks) + 1}:
        return "marked: not a start and the end of each of the first worker's marks"
    if len(worker.marked) != len(first.marked):
        return "marked: not as many steps as the first worker"
    names = {name for block in worker.native for durations in block.values() for name in durations}
    unknown = {part for name in names for part in name.split(TOGETHER)} - set(NAMES)
    return f"native: unknown phase {min(unknown)!r}" if unknown else None


read_ablation = record_reader(AblationLaunch, _parts_fit)
