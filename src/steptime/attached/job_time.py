"""What the whole time of an attached job went into, from the start of its command to its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

import numpy as np

from steptime.attached.attempts import Attempt
from steptime.attached.device_steps import drained_ns
from steptime.attached.exchange import split_exchange
from steptime.attached.form import JobPart
from steptime.attached.step_parts import REGIONS, KeptSteps
from steptime.attached.trainings import TrainingAttempts
from steptime.results.attached_files import ProcessLines

if TYPE_CHECKING:
    from steptime.results.attached_lines import StepLine, SummedSteps

_PER_S = 1e-9
NAMES: tuple[str, ...] = get_args(JobPart.model_fields["name"].annotation)
JOB_TITLES = {
    "start_up": "start-up",
    "first_steps": "first steps beyond later ones",
    "input": "input",
    "steps": "steps",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "held_up": "waiting for others' evaluation or checkpoint",
    "restart": "restarts",
    "end": "after the last step",
    "unknown": "not on record",
}
_LEAST_S = 1e-6
"""Less is the rounding of sums."""
_COUNTED = ("steps", "evaluation", "checkpoint", "restart")


@dataclass(frozen=True)
class CommandTime:
    """When the command began and ended, on the two clocks of the host that started it; end is None if not known."""

    boot: str
    begin_ns: int
    end_ns: int | None
    wall_minus_monotonic_ns: int

    def on_own_clock(self, process: ProcessLines, at_ns: int) -> int:
        """Return a time of a process on the monotonic clock of the command; of another host as exactly as it is set."""
        if process.process.boot == self.boot:
            return at_ns
        clock = process.process.clock
        return at_ns + clock.wall_ns - clock.monotonic_ns - self.wall_minus_monotonic_ns


@dataclass
class _Timeline:
    """What the processes of one rank did, one after the other."""

    rank: int
    processes: list[ProcessLines] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] += seconds


def job_parts(kept: Sequence[KeptSteps], trainings: Sequence[TrainingAttempts], command: CommandTime) -> list[JobPart]:
    """Return the parts of the job's time that are not 0, in the order of ``JobPart.name``.

    Args:
        kept: of every attempt, the earliest first.
        trainings: that these are attempts at. Between two trainings lie the end of one and the start-up of the other.
        command: when it began and ended.
    """
    timelines = [_filled(each, kept, trainings, command) for each in _timelines([each.attempt for each in kept])]
    if not timelines:
        return []
    found = []
    for name in NAMES:
        seconds = [each.seconds[name] for each in timelines]
        if max(seconds) > _LEAST_S:
            found.append((name, seconds))
    total = float(np.mean([sum(each.seconds.values()) for each in timelines]))
    return [
        JobPart(
            name=name,
            time_s=float(np.mean(seconds)),
            share=float(np.mean(seconds)) / total if total > 0.0 else 0.0,
            count=max(each.counts[name] for each in timelines) if name in _COUNTED else None,
            ranks_s=seconds,
        )
        for name, seconds in found
    ]


def beside_other_work_s(kept: Sequence[KeptSteps], kind: str) -> float:
    """Return by how many seconds a process' steps with evaluations or checkpoints are longer, beside these.

    As by an upload of what was saved, or a metric over all that was evaluated; of the process with most.
    """
    return max(
        (_longer_s(each, process, kind) for each in kept for process in each.attempt.processes.values()), default=0.0
    )


def _longer_s(kept: KeptSteps, process: ProcessLines, kind: str) -> float:
    steady = _steady_s(kept, process)
    if steady is None or (kept.with_saves and kind == "checkpoint"):
        return 0.0
    holding = [
        step
        for step in process.steps
        if step.number >= kept.numbers[0] and (step.save_s > 0.0 if kind == "checkpoint" else step.apart is not None)
    ]
    return sum(max(0.0, step.active_s - steady) for step in holding)


def _timelines(attempts: Sequence[Attempt]) -> list[_Timeline]:
    """Put the processes of a rank one behind the other; those that ran side by side are timelines of their own."""
    found: list[_Timeline] = []
    for attempt in attempts:
        for rank, process in attempt.processes.items():
            begin = process.steps[0].begin_ns
            earlier = [each for each in found if each.rank == rank and each.processes[-1].steps[-1].end_ns <= begin]
            timeline = earlier[-1] if earlier else _Timeline(rank)
            if not earlier:
                found.append(timeline)
            timeline.processes.append(process)
    return sorted(found, key=lambda each: each.rank)


def _filled(
    timeline: _Timeline, kept: Sequence[KeptSteps], trainings: Sequence[TrainingAttempts], command: CommandTime
) -> _Timeline:
    reached = command.begin_ns
    former: ProcessLines | None = None
    for process in timeline.processes:
        own = next(each for each in kept if any(process is one for one in each.attempt.processes.values()))
        restarted = former is not None and any(
            former in each.processes and process in each.processes for each in trainings
        )
        recorded: list[StepLine | SummedSteps] = [*process.steps, *process.summed]
        spans = [(each.begin_ns, each.end_ns) for each in recorded]
        begin, end = min(since for since, _ in spans), max(until for _, until in spans)
        before = command.on_own_clock(process, begin) - reached
        timeline.add("restart" if restarted else "start_up", _add_outside(timeline, process, before, of_start=True))
        timeline.counts["restart"] += restarted
        former = process
        known = _add_steps(timeline, process, own)
        timeline.add("unknown", max(0.0, (end - begin) * _PER_S - known))
        reached = command.on_own_clock(process, end)
        if process.end is not None and process is not timeline.processes[-1]:
            behind = command.on_own_clock(process, process.end.at_ns) - reached
            timeline.add("end", _add_outside(timeline, process, behind, of_start=False))
            reached += max(0, behind)
    if command.end_ns is not None:
        last = timeline.processes[-1]
        timeline.add("end", _add_outside(timeline, last, command.end_ns - reached, of_start=False))
    return timeline


def _add_outside(timeline: _Timeline, process: ProcessLines, span_ns: int, *, of_start: bool) -> float:
    """Add evaluations and checkpoints before the first step or behind the last; return what else of the span, in s."""
    left = max(0, span_ns)
    for line in process.outside:
        for name, lasting in (("evaluation", line.evaluation_ns), ("checkpoint", line.save_ns)):
            taken = min(left, lasting) if line.before is of_start else 0
            timeline.add(name, taken * _PER_S)
            timeline.counts[name] += taken > 0
            left -= taken
    return left * _PER_S


def _add_steps(timeline: _Timeline, process: ProcessLines, kept: KeptSteps) -> float:
    """Add what the steps of a process took, and return it, in seconds."""
    steady = _steady_s(kept, process)
    first_kept = kept.numbers[0] if kept.numbers else 0
    held_up = _held_up_s(kept, process)
    drained = drained_ns(process) if kept.queued_s else {}
    known = 0.0
    for step in process.steps:
        behind = drained.get(step.number, 0) * _PER_S
        fetching = step.seconds(*REGIONS["input_wait"])
        longer = max(0.0, step.active_s - steady) if step.number < first_kept and steady else 0.0
        longer = min(longer, step.active_s - fetching)
        waiting = 0.0 if longer else min(held_up.get(step.number, 0.0), step.active_s - fetching)
        timeline.add("evaluation", step.apart_s - behind)
        timeline.add("checkpoint", step.save_s)
        timeline.add("input", fetching)
        timeline.add("first_steps", longer)
        timeline.add("held_up", waiting)
        timeline.add("steps", step.active_s + behind - fetching - longer - waiting)
        timeline.counts["evaluation"] += step.apart is not None
        timeline.counts["checkpoint"] += step.save_s > 0.0
        known += step.duration_ns * _PER_S
    timeline.counts["steps"] += len(process.steps)
    for each in process.summed:
        fetching = sum(each.regions.get(name, 0) for name in REGIONS["input_wait"])
        saving = each.regions.get("save", 0)
        timeline.add("input", fetching * _PER_S)
        timeline.add("checkpoint", saving * _PER_S)
        timeline.add("evaluation", each.apart_ns * _PER_S)
        timeline.add("steps", max(0, each.duration_ns - each.apart_ns - saving - fetching) * _PER_S)
        timeline.counts["steps"] += each.last - each.first + 1
        known += each.duration_ns * _PER_S
    return known


def _steady_s(kept: KeptSteps, process: ProcessLines) -> float | None:
    numbers = set(kept.numbers)
    lengths = [step.active_s for step in process.steps if step.number in numbers]
    return float(np.mean(lengths)) if lengths else None


def _held_up_s(kept: KeptSteps, process: ProcessLines) -> Mapping[int, float]:
    """Return by how many seconds a process waits longer than usual in steps with others' evaluation or checkpoint."""
    usual, attempt = kept.exchange, kept.attempt
    if usual is None:
        return {}
    index = list(attempt.processes.values()).index(process)
    disturbed = [
        number
        for number, steps in attempt.steps.items()
        if any(step.apart is not None if kept.with_saves else step.holds_other_work for step in steps)
    ]
    numbers = sorted({*disturbed, *(number + 1 for number in disturbed if number + 1 in attempt.steps)})
    found = split_exchange(attempt, numbers) if numbers else ""
    if isinstance(found, str):
        return {}
    longer = np.maximum(found.waiting_s[index] - usual.waiting_s[index].mean(), 0.0)
    return dict(zip(found.numbers, longer.tolist(), strict=True))
