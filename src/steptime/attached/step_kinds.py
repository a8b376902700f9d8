"""Kinds of steps of an attached run: by micro-steps, by the optimizers that they update, and without an update."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

from steptime.attached.form import AttachedFinding
from steptime.attached.step_parts import KeptSteps
from steptime.results.attached_lines import StepLine
from steptime.units import format_count, format_seconds

_FEWEST_OF_A_KIND = 3
"""Steps of a kind, from which on it is one."""
_MOST_KINDS = 4
"""Of steps, that a sentence names."""
_UNLIKE = 1.5
"""Times the median step of one optimizer, from which on that of another is another kind."""
_LONGEST_ROUND = 3
"""Of a series of updates, the share that a round has at most, as its inverse."""


def kind_findings(kept: KeptSteps) -> Iterator[AttachedFinding]:
    """Yield how steps differ in micro-steps and optimizers, and what of updates was not seen.

    Args:
        kept: the steps, with their attempt.
    """
    steps = _since_turns_are_known([group[0] for group in kept.attempt.steps.values()])
    blind = any("blind" in step.flags for step in steps)
    first = steps[0].micro_steps if blind and steps else 1  # until it is known that no update is seen
    if len({step.micro_steps for step in steps[first > 1 :]}) > 1:
        shown = {kept.attempt.steps[number][0].micro_steps for number in kept.numbers}
        yield AttachedFinding(kind="micro_steps", sentence=_micro_steps(steps, shown), lost_s=None)
    if blind:
        compiled = any(process.graphs for process in kept.attempt.processes.values())
        where = "it lies in what torch.compile compiled, and is a gap here; " if compiled else ""
        as_one = f", the first {first} as one" if first > 1 else ""
        sentence = f"no update was seen: {where}steps are counted by requests of batches{as_one}"
        yield AttachedFinding(kind="update_not_seen", sentence=sentence, lost_s=None)
    skipped = sum("skipped" in step.flags for step in steps)
    if skipped:
        sentence = f"{skipped} of {format_count(len(steps), 'step')} made no update: GradScaler skipped it"
        yield AttachedFinding(kind="skipped_updates", sentence=sentence, lost_s=None)
    period = _round([tuple(step.optimizers) for step in steps])
    if period > 1 and len({optimizer for step in steps for optimizer in step.optimizers}) > 1:
        rounds = [steps[index : index + period] for index in range(0, len(steps) - period + 1, period)]
        lasts = format_seconds(float(np.median([sum(step.active_s for step in each) for each in rounds])))
        updates = sum(len(step.optimizers) for step in steps[:period])
        number = format_count(updates, "update")
        counted = f"{number}, which count as {period} steps," if updates == period else f"{number} in {period} steps"
        sentence = f"optimizers take turns: a round has {counted} and takes {lasts}{_by_optimizer(steps)}"
        yield AttachedFinding(kind="optimizer_rounds", sentence=sentence, lost_s=None)
    elif kinds := _by_optimizer(steps):
        sentence = f"steps differ in the optimizers that they update{kinds}"
        yield AttachedFinding(kind="optimizer_rounds", sentence=sentence, lost_s=None)


def pass_notes(kept: KeptSteps) -> Iterator[str]:
    """Yield how many passes steps have beside their micro-steps."""
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    yield from _further_passes([step.dropped for step in steps], "whose gradients the script drops before the update")
    yield from _further_passes([step.further for step in steps], "of a forward pass that had one")
    left_out = [step.left_out for group in kept.attempt.steps.values() for step in group if step.left_out]
    if left_out:
        passes = format_count(sum(left_out), "forward pass", "forward passes")
        yield f"no backward pass follows {passes}: what went forward there is not in the samples"


def _further_passes(numbers: Sequence[int], which: str) -> Iterator[str]:
    counts = sorted(set(numbers))
    if counts and counts[-1]:
        number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        yield f"steps have {number} more {'backward pass' if counts == [1] else 'backward passes'}, {which}"


def _since_turns_are_known(steps: Sequence[StepLine]) -> Sequence[StepLine]:
    """Return the steps without the first ones, where these are parts of what is one step later on.

    Without a loader it is not known at first that optimizers take turns.
    """
    first = max(range(len(steps)), key=lambda index: len(steps[index].optimizers), default=0)
    turn = steps[first].optimizers if steps else []
    single = [optimizer for step in steps[:first] for optimizer in step.optimizers]
    is_learnt = bool(single) and single == (turn * len(single))[: len(single)]
    return steps[first:] if is_learnt and "no_loader" in steps[0].flags else steps


def _by_optimizer(steps: Sequence[StepLine]) -> str:
    """Return how long the steps of different optimizers take, such as of two models, if that differs."""
    lengths: dict[tuple[int, ...], list[float]] = {}
    for step in steps:
        if not step.holds_other_work and step.optimizers:
            lengths.setdefault(tuple(step.optimizers), []).append(step.active_s)
    common = sorted((own for own in lengths.values() if len(own) >= _FEWEST_OF_A_KIND), key=len, reverse=True)
    medians = [float(np.median(own)) for own in common]
    if len(medians) < 2 or max(medians) < _UNLIKE * min(medians):  # noqa: PLR2004 - kinds to compare
        return ""
    kinds = [f"{len(own)} of {format_seconds(median)}" for own, median in zip(common, medians, strict=True)]
    others = " and others" if len(kinds) > _MOST_KINDS else ""
    return f"; by what they update, there are steps like {', '.join(kinds[:_MOST_KINDS])}{others}: the parts are of all"


def _micro_steps(steps: Sequence[StepLine], shown: Collection[int]) -> str:
    """Say which kinds of steps there are by their micro-steps, how long each takes, and which the parts are of."""
    lengths: dict[int, list[float]] = {}
    for step in steps:
        lengths.setdefault(step.micro_steps, []).append(step.active_s)
    common = sorted(lengths.items(), key=lambda item: -len(item[1]))
    kinds = [
        f"{format_count(len(own), 'step')} of {format_count(count, 'micro-step')} ({format_seconds(np.median(own))})"
        for count, own in common[:_MOST_KINDS]
    ]
    others = " and others" if len(lengths) > _MOST_KINDS else ""
    changes = [later.number for step, later in pairwise(steps) if later.micro_steps != step.micro_steps]
    changed = f", which changes once, at step {changes[0]}" if len(changes) == 1 else ""
    of = f"; the parts are of those with {next(iter(shown))}" if len(shown) == 1 else ""
    return f"steps differ in their number of micro-steps{changed}: {', '.join(kinds)}{others}{of}"


def _round(updates: Sequence[tuple[int, ...]]) -> int:
    """Return after how many steps the same optimizers come again; 1 where every step has the same or none repeat."""
    for period in range(1, len(updates) // _LONGEST_ROUND + 1):
        if all(updates[index] == updates[index - period] for index in range(period, len(updates))):
            return period
    return 1
