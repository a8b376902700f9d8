"""Samples and tokens that an attached script trains on in a second, by the shapes of its loader's batches."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.attached.form import Throughput, TrainedAmount
from steptime.attached.same_batches import batch_groups
from steptime.attached.step_parts import KeptSteps, why_input_is_unseen
from steptime.results.attached_lines import StepLine
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.statistics.interval import difference_within

_NO_LOADER = "no loader was seen: the script makes its batches itself"
_NO_BATCH = "the arrays of a batch do not share a first dimension"
_NO_TEXT = "batches hold neither input_ids nor integers with a row for each sample"
_DOUBLE = 1.5
"""Times the median, that a step with two batches has at least."""
_SPLIT = "ranks hold pieces of one model, and may read the same batches"


def throughput(kept: KeptSteps) -> Throughput:
    """Return what the kept steps, of which there is one at least, train on in a second."""
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    alone = all("no_loader" in step.flags and step.elsewhere is None for step in steps)
    unseen = (why_input_is_unseen(kept) or _NO_LOADER) if alone else None
    groups = batch_groups(kept.attempt)
    readers = _readers(kept.attempt.ranks, groups)
    split = _SPLIT if groups is None and kept.attempt.is_pipeline(kept.numbers) else None
    masks = [step.mask for step in steps if step.mask is not None]
    looked_at = sum(tokens for tokens, _ in masks)
    return Throughput(
        samples=_amount(kept, lambda step: step.samples, unseen or _NO_BATCH, split, readers),
        tokens=_amount(kept, lambda step: step.tokens, unseen or _NO_TEXT, split, readers),
        same_batches=[ranks for ranks in groups or () if len(ranks) > 1],
        padding=1.0 - sum(real for _, real in masks) / looked_at if looked_at else None,
    )


def _amount(
    kept: KeptSteps,
    amount_of: Callable[[StepLine], int | None],
    reason: str,
    split: str | None,
    readers: Sequence[int],
) -> TrainedAmount:
    """Return an amount a second.

    ``reason`` is why it is not known where a step lacks it, ``split`` why its sum is not; ``readers`` are the places of
    the ranks that count.

    The rate is the sum over steps by the sum of their times. Its interval is that of the mean of what each step has
    beyond the rate (the delta method), since steps of larger batches take longer.
    """
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    if any(amount_of(step) is None for step in steps):
        return TrainedAmount(per_s=NOT_MEASURED, per_step=None, ranks_per_s=[], reason=reason)
    amounts = kept.of_ranks(lambda step: float(amount_of(step) or 0))
    counted = _counted(amounts.sum(axis=0))
    amounts, length = amounts[:, counted], kept.length_s.mean(axis=0)[counted]
    if length.sum() <= 0.0:
        return TrainedAmount(per_s=NOT_MEASURED, per_step=None, ranks_per_s=[], reason="steps took no time")
    ranks = [float(value) for value in amounts.sum(axis=1) / length.sum()]
    if split is not None:
        return TrainedAmount(per_s=NOT_MEASURED, per_step=None, ranks_per_s=ranks, reason=split)
    total = amounts[readers].sum(axis=0)
    rate = float(total.sum() / length.sum())
    beyond = difference_within((total - rate * length) / length.mean())
    known = beyond.low is not None and beyond.high is not None
    low, high = (max(0.0, rate + (beyond.low or 0.0)), rate + (beyond.high or 0.0)) if known else (None, None)
    return TrainedAmount(
        per_s=Interval(rate, low, high), per_step=float(np.mean(total)), ranks_per_s=ranks, reason=None
    )


def _readers(ranks: Sequence[int], groups: Sequence[Sequence[int]] | None) -> list[int]:
    """Return the places of one rank of each group, since what several read counts once; all if none are known."""
    return [ranks.index(group[0]) for group in groups or [[rank] for rank in ranks]]


def _counted(totals: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which steps count, of which a loop that asks ahead has one without a batch of its own at the end.

    At the ends of other epochs a step with two batches follows, which makes up for it.
    """
    empty = np.flatnonzero(totals == 0.0)
    double = int((totals > _DOUBLE * np.median(totals)).sum())
    counted = np.ones(len(totals), dtype=np.bool_)
    counted[empty[double:]] = False
    return counted
