"""What of an attached run takes time that it need not take, and what limits the numbers: a sentence each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.attached.device_steps import device_idle_s, device_time, host_findings
from steptime.attached.few_steps import which_steps
from steptime.attached.form import AttachedFinding, FewSteps, GpuUse, JobPart, RankMemory, StepPart, WaitedFor
from steptime.attached.garbage import garbage_findings
from steptime.attached.gpus import gpu_findings
from steptime.attached.job_time import beside_other_work_s
from steptime.attached.memory import memory_findings
from steptime.attached.pipeline import pipeline_findings
from steptime.attached.sampled_lines import at_line, most_seen_line, whose_code
from steptime.attached.step_kinds import kind_findings
from steptime.attached.step_parts import (
    EXCHANGE,
    KeptSteps,
    is_in_turn,
    known_part,
    loader_starts,
    requests_elsewhere,
    title_of,
)
from steptime.attached.step_spread import stalls_sentence, step_spread
from steptime.attached.trainings import TrainingAttempts
from steptime.attached.waiting import is_shown, percent, waiting_findings, with_interval
from steptime.phases import REST
from steptime.statistics.interval import difference_within
from steptime.units import format_count, format_seconds

_NOTABLE = 0.1
"""Share of a step or of the job that is worth a sentence."""
_NOTABLE_ONCE = 0.05
"""Share of the job, of what does not come again with every step."""
_BUSY = 0.8
"""Share of the time that a thread asks a loader, from which on the steps take as long as its batches."""
_FEWEST_TIMES = 3
"""Evaluations or checkpoints, from which on they come again."""
_MANY_COMPILATIONS, _NOTABLE_COMPILATION = 4, 0.01
"""Recompilations that are always named, and the share of the job from which on fewer are."""
_OR_OTHER = " (or other passes without gradient between steps)"
_BESIDES = " beside the evaluations and checkpoints seen there"
_MOST_OF_IT = 0.5
"""Of all waiting: who causes as much is not one of many."""
_EVERY_STEP = (
    "straggler",
    "host_limit",
    "waiting",
    "input",
    "communication",
    "pipeline",
    "gaps",
    "garbage_collection",
    "stalls",
    "loader_elsewhere",
    "loader_starts",
    "no_grad",
)


@dataclass(frozen=True)
class AttachedFindings:
    """What a run has, as findings need it."""

    kept: Sequence[KeptSteps]
    """Of every attempt."""
    trainings: Sequence[TrainingAttempts]
    """That these are attempts at."""
    main: KeptSteps
    """Of the attempt that the parts are of."""
    parts: Sequence[StepPart]
    waited_for: WaitedFor | None
    job: Sequence[JobPart]
    memory: Sequence[RankMemory]
    gpus: Sequence[GpuUse]

    def part(self, name: str) -> StepPart | None:
        return known_part(self.parts, name)

    def of_job(self, name: str) -> JobPart | None:
        return next((part for part in self.job if part.name == name), None)

    @property
    def steps(self) -> int:
        found = self.of_job("steps")
        return (found.count if found else None) or 0


def findings_of(found: AttachedFindings) -> list[AttachedFinding]:
    """Return what takes time: first what comes again with every step, then the rest, each by the seconds it takes."""
    all_found = [
        *waiting_findings(found.main, found.waited_for, found.part("sync_wait"), found.steps),
        *pipeline_findings(found.main, found.part(EXCHANGE), found.steps),
        *_part_findings(found),
        *_job_findings(found),
        *kind_findings(found.main),
    ]
    all_found += [
        *_stalled_steps(found),
        *_uncompiled(found),
        *_recompiled(found),
        *_ablation_findings(found),
        *_fault_findings(found),
    ]
    if found.main.device:
        step_s = float(found.main.length_s.mean())
        all_found += host_findings(device_time(found.main.attempt, found.main.of_device, 0.0), step_s, found.steps)
    all_found += [*memory_findings(found.memory, *_extent(found.main)), *gpu_findings(found.gpus)]
    all_found += garbage_findings(found.main, found.part("garbage_collection"), found.steps)
    again = {*_EVERY_STEP, *_coming_again(found)}
    ordered = sorted(all_found, key=lambda each: (each.kind not in again, -(each.lost_s or 0.0)))
    return _with_its_cause_behind(ordered, found)


def _coming_again(run: AttachedFindings) -> Iterator[str]:
    """Yield the kinds of other work that comes again among the steps: a longer job has more of it."""
    for part in filter(None, map(run.of_job, ("evaluation", "checkpoint"))):
        if (part.count or 0) >= _FEWEST_TIMES:
            yield from (part.name, f"{part.name}_on_few_ranks")


def _extent(kept: KeptSteps) -> tuple[int, float]:
    """Return how many steps there are that parts are means of, and the seconds that they took."""
    return len(kept.numbers), float(kept.length_s.mean(axis=0).sum()) if kept.numbers else 0.0


def _with_its_cause_behind(ordered: list[AttachedFinding], run: AttachedFindings) -> list[AttachedFinding]:
    """Return findings with the straggler before the part that makes it one: the same time, and it has the waiting."""
    kinds: list[str] = [finding.kind for finding in ordered]
    gaps = [part.name for part in run.parts if part.gap and part.share and is_shown(part.time_s)]
    own_part = run.waited_for.part if run.waited_for else None
    cause = own_part if own_part == "no_grad" else "gaps" if gaps and own_part == gaps[0] else ""
    if {"straggler", cause} <= set(kinds) and kinds.index(cause) < kinds.index("straggler"):
        straggler = ordered.pop(kinds.index("straggler"))
        ordered.insert(kinds.index(cause), straggler)
    return ordered


def _part_findings(found: AttachedFindings) -> Iterator[AttachedFinding]:
    step_s = float(found.main.length_s.mean())
    known_idle_s = device_idle_s(found.main.attempt, found.main.numbers, step_s)
    idle_s = step_s if known_idle_s is None else known_idle_s
    for name, kind, words, few_words in (
        (
            "input_wait",
            "input",
            "each step waits {time} for its input, {share} of it",
            "{steps} wait {time} for their input",
        ),
        (
            "comm_exposed",
            "communication",
            "communication that nothing covers takes {time} of each step, {share}",
            "{steps} spend {time} in communication that nothing covers",
        ),
        (
            "no_grad",
            "no_grad",
            "forward passes without gradient, or in evaluation mode, take {time} of each step, {share}",
            "{steps} spend {time} in forward passes without gradient, or in evaluation mode",
        ),
    ):
        part = found.part(name)
        if part is not None and (part.share or 0.0) >= _NOTABLE and is_shown(part.time_s):
            said = words.format(time=with_interval(part.time_s), share=percent(part.share))
            sentence = said + at_line(part.where) + _in_turn(part)
            if part.few is not None:
                sentence = _few_sentence(part, part.few, few_words)
            lost_s = min(_lost(part, found), idle_s * found.steps) if kind == "input" else _lost(part, found)
            if kind == "input" and idle_s < _NOTABLE * step_s:  # it is asked for while the device is busy
                continue
            if (
                kind == "input"
                and (starts := loader_starts(found.main))[1] >= _MOST_OF_IT
                and starts[0] >= _FEWEST_TIMES
            ):
                kind = "loader_starts"  # noqa: PLW2901 - a kind of waiting for input
                sentence += f"; {percent(starts[1])} of that in the {starts[0]} steps in which an epoch begins"
            yield AttachedFinding(kind=kind, sentence=sentence, lost_s=lost_s)
    gaps = [part for part in found.parts if part.gap and part.share and is_shown(part.time_s)]
    asked = requests_elsewhere(found.main)
    between_s = sum(part.time_s.value or 0.0 for part in gaps)
    if min(between_s, idle_s) >= _NOTABLE * step_s > 0.0:
        most = gaps[0]
        others = f", and {format_seconds(sum(part.time_s.value or 0.0 for part in gaps[1:]))} elsewhere"
        sentence = (
            f"{with_interval(most.time_s)} of each step, {percent(most.share)}, passes "
            f"{'on the device ' if found.main.device else ''}{title_of(most.name)}"
            f"{at_line(most.where)}{others if len(gaps) > 1 else ''}: {whose_code(most.where)} that nothing marks"
            f"{_one_cause(most, found.waited_for) or _in_turn(most)}"
        )
        if most.few is not None:
            sentence = f"{_spending_few(most, most.few)}: {whose_code(most.where)} that nothing marks"
        sentence += _asked_elsewhere(*asked) if asked else ""
        lost_s = min(sum(_lost(part, found) for part in gaps), idle_s * found.steps)
        if idle_s < between_s:
            sentence += f"; the device of JAX computes meanwhile, and lacks work for {format_seconds(idle_s)} of a step"
        kind = "loader_elsewhere" if asked and asked[1] >= _BUSY else "gaps"
        yield AttachedFinding(kind=kind, sentence=sentence, lost_s=lost_s)


def _one_cause(part: StepPart, whom: WaitedFor | None) -> str:
    """Return that a part is what the others wait for, if it is; a mean over ranks is less than what it costs a step."""
    if whom is None or whom.part != part.name:
        return ""
    return f"; the mean over ranks of what the others wait for {whom.title} for"


def _few_sentence(part: StepPart, few: FewSteps, words: str) -> str:
    """Return that few steps have a part, how long it takes in them, where, and how long in the others."""
    share = percent(few.share if few.one_rank else part.share)
    time = with_interval(few.each_s) + (" on the rank that it takes longest" if few.one_rank else "")
    text = words.format(steps=which_steps(few), time=time)
    return f"{text}{at_line(part.where)}; the others {format_seconds(few.others_s)}; {share} of the time of steps"


def _spending_few(part: StepPart, few: FewSteps) -> str:
    return _few_sentence(part, few, f"{{steps}} spend {{time}} {'' if part.gap else 'in '}{title_of(part.name)}")


def _other_parts_of_few(run: AttachedFindings) -> Iterator[AttachedFinding]:
    """Yield the parts that take long in few steps, and have no finding of their own."""
    named = {"input_wait", "comm_exposed", "no_grad", "garbage_collection", REST}
    named |= {part.name for part in run.parts if part.gap and part.share and is_shown(part.time_s)}
    unnamed = ((part, part.few) for part in run.parts if part.few is not None and part.name not in named)
    for part, few in unnamed:
        lost_s = _beyond_others(few)
        if lost_s >= _NOTABLE * float(run.main.length_s.mean(axis=0).sum()):
            yield AttachedFinding(kind="stalls", sentence=_spending_few(part, few), lost_s=lost_s)


def _beyond_others(few: FewSteps) -> float:
    """Return how much longer few steps take for a part than others do, in all."""
    return len(few.numbers) * ((few.each_s.value or 0.0) - few.others_s)


def _asked_elsewhere(lasts_s: float, busy: float) -> str:
    """Return how long another thread asks a loader, for which the one that trains may wait in a gap."""
    share = percent(min(1.0, busy))
    return f"; another thread asks the loader {share} of the time, {format_seconds(lasts_s)} for each batch"


def _lost(part: StepPart, found: AttachedFindings) -> float:
    return ((part.gain_s if is_in_turn(part) else part.time_s).value or 0.0) * found.steps


def _in_turn(part: StepPart) -> str:
    """Return what a part costs with the waiting for it, where ranks have it in turn."""
    if not is_in_turn(part):
        return ""
    return f"; the others wait for whom it takes longest: a step is {with_interval(part.gain_s)} longer for it"


def _job_findings(found: AttachedFindings) -> Iterator[AttachedFinding]:
    outside = [process.outside for each in found.kept for process in each.attempt.processes.values()]
    held_up = found.of_job("held_up")
    waited = held_up.time_s if held_up else 0.0
    evaluation, checkpoint = found.of_job("evaluation"), found.of_job("checkpoint")
    for part, kind, verb in ((evaluation, "evaluation", "evaluates"), (checkpoint, "checkpoint", "saves")):
        if part is None:
            continue
        idle = [rank for rank, seconds in zip(_ranks(found), part.ranks_s, strict=False) if seconds <= 0.0]
        busy = [rank for rank, seconds in zip(_ranks(found), part.ranks_s, strict=False) if seconds > 0.0]
        alone = bool(idle) and held_up is not None and len(found.trainings) == 1
        lost_s = max(part.ranks_s) if alone else part.time_s
        within = (part.count or 0) - max(
            (sum(line.evaluation_ns > 0 for line in lines) for lines in outside), default=0
        )
        if alone and kind == "evaluation" and within > 0:
            longest_s = max(held_up.ranks_s) if held_up else 0.0
            sentence = (
                f"rank {_few(busy)} {verb} {format_count(within, 'time')} while the others wait, "
                f"{format_seconds(longest_s)} in all"
            )
            yield AttachedFinding(kind="evaluation_on_few_ranks", sentence=sentence, lost_s=longest_s)
            continue
        beside_s = beside_other_work_s(found.kept, kind)
        if lost_s + max(waited, beside_s) >= _NOTABLE_ONCE * _whole_s(found):
            takes = "takes" if part.count == 1 else "take"
            share = percent(lost_s / _whole_s(found))
            work = format_count(part.count or 0, kind) + (_OR_OTHER if kind == "evaluation" else "")
            processes = (process for kept in found.kept for process in kept.attempt.processes.values())
            line = at_line(most_seen_line(processes, ["save" if kind == "checkpoint" else kind]))
            work += f" of rank {_few(busy)}" if busy and idle and len(found.trainings) == 1 else ""
            sentence = f"{work} {takes} {format_seconds(lost_s)}, {share} of the job{line}"
            if beside_s >= _NOTABLE_ONCE * _whole_s(found):
                sentence += f"; what lies beside them makes their steps {format_seconds(beside_s)} longer in all"
                lost_s += beside_s
            yield AttachedFinding(kind=kind, sentence=sentence, lost_s=lost_s)
    of_each = "" if len(found.trainings) == 1 else " of each training"
    for name, words in (
        ("first_steps", "the first steps take {time} more than later ones, {share} of the job"),
        ("start_up", "{time} pass before the first step{of_each}{besides}, {share} of the job"),
        ("end", "{time} elapse after the last step{of_each}{besides}, {share} of the job"),
    ):
        part = found.of_job(name)
        if part is not None and part.share >= _NOTABLE_ONCE:
            aside = any(line.before is (name == "start_up") for lines in outside for line in lines)
            besides = _BESIDES if aside and name != "first_steps" else ""
            time, share = format_seconds(part.time_s), percent(part.share)
            said = words.format(time=time, share=share, besides=besides, of_each=of_each)
            yield AttachedFinding(kind=name, sentence=said, lost_s=part.time_s)
    restart = found.of_job("restart")
    if restart is not None:
        again = [each for each in found.trainings if len(each.attempts) > 1]
        made = [sorted(len(attempt.steps) for attempt in each.attempts) for each in again]
        lost = format_count(sum(sum(steps[:-1]) for steps in made), "step")
        times, took = format_count(restart.count or 0, "time"), format_seconds(restart.time_s)
        sentence = f"the job was restarted {times}, which took {took}; attempts beside the longest made {lost}"
        yield AttachedFinding(kind="restart", sentence=sentence, lost_s=restart.time_s)


def _ranks(found: AttachedFindings) -> list[int]:
    return sorted({rank for each in found.kept for rank in each.attempt.ranks})


def _whole_s(found: AttachedFindings) -> float:
    return sum(part.time_s for part in found.job) or 1.0


def _stalled_steps(run: AttachedFindings) -> Iterator[AttachedFinding]:
    spread = step_spread(run.main)
    few_s = sum(_beyond_others(part.few) for part in run.parts if part.few is not None)
    yield from _other_parts_of_few(run)
    if spread is not None and spread.stalls is not None and few_s < _MOST_OF_IT * spread.stalls.lost_s:
        sentence = stalls_sentence(spread.stalls, spread.median_s)
        yield AttachedFinding(kind="stalls", sentence=sentence, lost_s=spread.stalls.lost_s)


def _uncompiled(found: AttachedFindings) -> Iterator[AttachedFinding]:
    """Name a torch.compile whose graphs lack the network; two arrays of weights are a layer."""
    lines = [line for each in found.main.attempt.processes.values() for line in each.graphs]
    for fewest in sorted(lines, key=lambda line: line.operations)[:1]:
        operations, graphs = format_count(fewest.operations, "operation"), format_count(fewest.graphs, "graph")
        made = f"torch.compile put {operations} into {graphs}, and the network has "
        weights = format_count(fewest.weights, "array")
        sentence = f"{made}{weights} of weights: most of it ran uncompiled; compile it before DDP or FSDP"
        if 2 * fewest.operations < fewest.weights:
            yield AttachedFinding(kind="uncompiled", sentence=f"{sentence} wraps it", lost_s=None)


def _recompiled(run: AttachedFindings) -> Iterator[AttachedFinding]:
    """Name the guards for which torch.compile compiled again, of the rank that it took longest."""
    lines = [line for process in run.main.attempt.processes.values() for line in process.graphs]
    most = max(lines, key=lambda line: (line.recompile_ns, line.recompilations), default=None)
    if most is None or not most.guards:
        return
    lost_s = most.recompile_ns * 1e-9
    if most.recompilations < _MANY_COMPILATIONS and lost_s < _NOTABLE_COMPILATION * _whole_s(run):
        return
    further = f" (and {len(most.guards) - 1} more)" if len(most.guards) > 1 else ""
    sentence = (
        f"torch.compile compiled again {format_count(most.recompilations, 'time')}, in {format_seconds(lost_s)}, since "
        f"a guard failed: {most.guards[0]}{further}"
    )
    yield AttachedFinding(kind="recompilations", sentence=sentence, lost_s=lost_s)


def _ablation_findings(found: AttachedFindings) -> Iterator[AttachedFinding]:
    """Compare, of a throw-away run, the blocks that lacked a part with the whole ones of the same round."""
    blocks: dict[tuple[str, str], list[float]] = {}
    for steps in found.main.attempt.steps.values():
        lacking = steps[0].ablation
        if lacking is not None and not any(step.holds_other_work for step in steps):
            blocks.setdefault(lacking, []).append(float(np.mean([step.active_s for step in steps])))
    means = {block: float(np.median(seconds)) for block, seconds in blocks.items()}
    for part, words in (("input", "its loader"), ("exchange", "DDP's exchange"), ("update", "its update")):
        rounds = [number for number, lacked in means if lacked == part and (number, "whole") in means]
        if part == "exchange" and len(found.main.attempt.ranks) < 2:  # noqa: PLR2004 - it exchanges with no other
            continue
        if rounds:
            less = difference_within(np.array([means[number, "whole"] - means[number, part] for number in rounds]))
            pairs = format_count(len(rounds), "pair")
            sentence = f"without {words} a step takes {with_interval(less)} less, by {pairs} of blocks"
            yield AttachedFinding(kind="ablation", sentence=sentence, lost_s=None)


def _fault_findings(found: AttachedFindings) -> Iterator[AttachedFinding]:
    faults = Counter(
        (fault.hook, fault.error)
        for each in found.kept
        for process in each.attempt.processes.values()
        for fault in process.faults
    )
    for (hook, error), count in faults.items():
        times = f" in {count} processes" if count > 1 else ""
        sentence = f"steptime's own code failed at {hook}{times} and was disabled ({error}); please report it"
        yield AttachedFinding(kind="fault", sentence=sentence, lost_s=None)


def _few(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:3])) + (", …" if len(ranks) > 3 else "")  # noqa: PLR2004 - a few
