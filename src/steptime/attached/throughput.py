"""Samples and tokens that an attached script trains on in a second, by the shapes of its loader's batches.

Without a loader, by those of the tensors that go forward.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from steptime.attached.form import Throughput, TrainedAmount
from steptime.attached.same_batches import batch_groups
from steptime.attached.separate_models import averages_by_horovod, averages_gradients, averages_shards
from steptime.attached.step_parts import KeptSteps, why_input_is_unseen, why_unseen
from steptime.results.attached_lines import StepLine
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.statistics.interval import difference_within
from steptime.units import format_count

_NO_LOADER = "no loader that steptime knows was seen"
_NO_BATCH = "the arrays of a batch do not share a first dimension"
_IN_THREAD = "a thread of the script reads batches, and what goes forward is not seen to be in their number of rows"
_NO_TEXT = "batches hold neither input_ids nor integers with a row for each sample"
_UNEVEN = "steps ask loaders for {} to {} batches each, and the rows that go forward are not those of the batches"
_IN_HAND = (
    "steps ask no loader for a batch, as where one is in hand, and what goes forward is not seen to have its rows"
)
ACTING = "evaluation or acting"
"""What lies beside steps of a script that may act between them, as in reinforcement learning."""
_LEAST_BESIDE = 0.05
"""Share of the time, from which on what a script without a loader does beside its steps is named."""
_DOUBLE = 1.5
"""Times the median, that a step with two batches has at least."""
_AHEAD = 0.1
"""Share of the steps that may ask for a batch less or more, as at the end of an epoch."""
_LEAST_ROWS, _MOST_ROWS = 0.5, 1.05
"""Rows that go forward for each sample that loaders give, where they are samples: some wait, or are left out."""
_AS_SHARED = 0.05
"""By what part the rows that go forward on a rank may differ from its share of the batches that it reads."""
_AT_ENDS = 1
"""By how much steps without a batch of their own and those with two may differ in number."""
_FEWEST_BATCHES = 8
"""Steps of a size of batches, from which on it is named."""
_SPLIT = "ranks hold pieces of one model, and may read the same batches"
_NOT_COMPARED = "ranks may train on the same: what goes forward was not compared, and they average no gradients"


def throughput(kept: KeptSteps) -> Throughput:
    """Return what the kept steps, of which there is one at least, train on in a second."""
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    alone = _has_no_loader(kept)
    groups = batch_groups(kept.attempt)
    readers = _readers(kept.attempt.ranks, groups)
    shares = any(len(group) > 1 for group in groups or ())
    split = _SPLIT if not shares and kept.attempt.is_pipeline(kept.numbers) else None
    if alone and groups is None:
        split = split or _why_not_added(kept)
    # Of all steps, since few masks are looked at, and what they hold does not hang on when.
    masks = [step.mask for group in kept.attempt.steps.values() for step in group if step.mask is not None]
    looked_at = sum(tokens for tokens, _ in masks)
    uneven = _uneven_requests(kept)
    share = _share_kept(kept)
    rows = share is not None or (uneven is not None and _rows_are_samples(kept))
    return Throughput(
        samples=_amount(
            kept,
            _rows if rows else _unknown if uneven else _samples,
            _why_not_forward(kept, "samples") if alone else _why_not_given(kept) or uneven or _NO_BATCH,
            split,
            readers,
        ),
        tokens=_amount(
            kept,
            _unknown if uneven and share is None else lambda step: _tokens(step, share),
            (
                _why_not_forward(kept, "tokens")
                if alone
                else _why_not_given(kept) or (uneven if any(step.tokens for step in steps) else None) or _NO_TEXT
            ),
            split,
            readers,
        ),
        same_batches=[ranks for ranks in groups or () if len(ranks) > 1],
        padding=1.0 - sum(real for _, real in masks) / looked_at if looked_at else None,
    )


def _has_no_loader(kept: KeptSteps) -> bool:
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    return all("no_loader" in step.flags and step.elsewhere is None for step in steps)


def _why_not_added(kept: KeptSteps) -> str | None:
    """Return why amounts of ranks that were not compared make no sum, or None if they average gradients."""
    averages = any(way(kept.attempt) for way in (averages_gradients, averages_shards, averages_by_horovod))
    return None if averages or len(kept.attempt.ranks) < 2 else _NOT_COMPARED  # noqa: PLR2004 - ranks


def _why_not_forward(kept: KeptSteps, amount: str) -> str:
    """Return why an amount is not known of a script without a loader."""
    hidden, why = why_input_is_unseen(kept) or _NO_LOADER, why_unseen(kept, amount)
    return f"{hidden}, and {why}" if why else hidden


def _why_not_given(kept: KeptSteps) -> str | None:
    """Return why amounts are not known of a script whose threads read batches; None of one where they are."""
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    return _IN_THREAD if any(step.elsewhere is not None and step.samples is None for step in steps) else None


def _samples(step: StepLine) -> int | None:
    """Return how many samples a step has: rows, or what loaders were asked for if these are in more rows, or in one.

    One that was asked for a sample at a time may give a whole batch for it; fewer rows may be without what was left
    out.
    """
    if step.asked is None or step.samples is None or step.asked <= step.micro_steps:
        return step.samples
    return step.asked if step.samples > step.asked or step.samples <= step.micro_steps else step.samples


def _rows(step: StepLine) -> int | None:
    return None if "mixed" in step.flags else step.samples if step.rows is None else step.rows


def _unknown(step: StepLine) -> None:  # noqa: ARG001 - the form of all
    return None


def _tokens(step: StepLine, share: float | None) -> int | None:
    """Return the tokens of a step; those that its rank keeps where it reads for others, whose rows are as long."""
    if step.tokens is None or share is None or "no_loader" in step.flags:
        return step.tokens
    return round(step.tokens * share)


def _share_kept(kept: KeptSteps) -> float | None:
    """Return which share of its batches a rank keeps that reads for others, which ask no loader; None if none does.

    The rows that go forward on it show that, as of accelerate's dispatched batches.
    """
    by_rank = list(zip(*kept.attempt.steps.values(), strict=True))
    reading = [steps for steps in by_rank if not all("no_loader" in step.flags for step in steps)]
    if not reading or len(reading) == len(by_rank):
        return None
    rows = [_rows(step) for steps in reading for step in steps]
    given = sum(step.samples or 0 for steps in reading for step in steps)
    went, share = sum(each or 0 for each in rows), len(reading) / len(by_rank)
    return share if None not in rows and given and abs(went / given - share) <= _AS_SHARED * share else None


def _uneven_requests(kept: KeptSteps) -> str | None:
    """Return that steps ask loaders for batches unevenly, as a script does that makes batches of its own of them."""
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    requests = Counter(step.requests for step in steps)
    passes = Counter(step.requests / max(1, step.micro_steps) for step in steps)
    usual = max(requests, key=lambda count: (requests[count], count))
    if usual == 0:
        return _IN_HAND
    unasked = any(step.requests == 0 and step.samples is None for step in steps)
    if not unasked and min(len(steps) - max(requests.values()), len(steps) - max(passes.values())) <= _AHEAD * len(
        steps
    ):
        return None
    if requests.keys() <= {0, usual, 2 * usual} and abs(requests[0] - requests[2 * usual]) <= _AT_ENDS:
        return None if not _rows_are_samples(kept) else _UNEVEN.format(min(requests), max(requests))
    return _UNEVEN.format(min(requests), max(requests))


def _rows_are_samples(kept: KeptSteps) -> bool:
    """Return whether arrays go forward with a row for each sample: all together have nearly as many as the batches."""
    steps = [step for group in kept.attempt.steps.values() for step in group]
    rows = [_rows(step) for step in steps]
    batches = [step.samples or 0 for step in steps]
    if 2 * batches.count(0) > len(batches):  # of a batch in hand some go forward, or all
        return None not in rows and max(each or 0 for each in rows) <= _MOST_ROWS * max(batches)
    given = sum(batches)
    return None not in rows and _LEAST_ROWS * given <= sum(each or 0 for each in rows) <= _MOST_ROWS * given


def batch_notes(kept: KeptSteps) -> Iterator[str]:
    """Yield which sizes of batches a run has one after the other, as in a curriculum: its numbers are of some alone."""
    uneven = _uneven_requests(kept)
    sizes = [_rows(group[0]) if uneven else group[0].samples for group in kept.attempt.steps.values()]
    counts = {
        size: number for size in dict.fromkeys(sizes) if (number := sizes.count(size)) >= _FEWEST_BATCHES and size
    }
    changes = sum(one != other for one, other in pairwise(sizes))
    if len(counts) > 1 and changes < 2 * len(counts):
        listed = ", ".join(f"{format_count(number, 'step')} of {size}" for size, number in counts.items())
        yield f"sizes of batches change for good: {listed} samples; the parts are of steps from {kept.numbers[0]} on"


def _forward_note(kept: KeptSteps) -> Iterator[str]:
    first = kept.attempt.steps[kept.numbers[0]][0]
    counted = [name for name in ("samples", "tokens") if getattr(first, name) is not None]
    if counted and _has_no_loader(kept):
        yield f"{' and '.join(counted)} are of the arrays that go forward: {_NO_LOADER}"


def _rows_note(kept: KeptSteps) -> Iterator[str]:
    """Yield that samples are rows that went forward, and why; nothing where they are of the loader's batches."""
    if _share_kept(kept) is not None:
        yield "samples are rows that went forward: ranks ask loaders for the batches of others"
    elif _uneven_requests(kept) and _rows_are_samples(kept):
        batches = "no batch" if _uneven_requests(kept) == _IN_HAND else "differing numbers of batches"
        yield f"samples are rows that went forward: steps ask loaders for {batches}"


def _is_one_batch(kept: KeptSteps) -> bool:
    """Return whether every step but the first trains on the very arrays of the step before, those not kept as well."""
    later = [group for number, group in kept.attempt.steps.items() if number and number >= kept.numbers[0]]
    return bool(later) and all("same_batch" in step.flags for group in later for step in group)


def _acting_note(kept: KeptSteps) -> Iterator[str]:
    """Yield what the rate leaves out between steps, as the acting of reinforcement learning."""
    steps = [group[0] for number, group in kept.attempt.steps.items() if number >= kept.numbers[0]]
    beside = sum(step.apart is not None for step in steps)
    share = sum(step.apart_s for step in steps) / max(1e-9, sum(step.duration_ns * 1e-9 for step in steps))
    if beside and (kept.near_evaluation or (_has_no_loader(kept) and share >= _LEAST_BESIDE)):
        where = f"beside {beside} of {format_count(len(steps), 'step')}"
        since = f"{100.0 * share:.0f} % of the time since step {kept.numbers[0]}"
        yield f"the rate leaves out {ACTING} (passes without gradient) {where}: {since}"


def sample_notes(kept: KeptSteps) -> Iterator[str]:
    """Yield what counts as a sample, where batches have another number of rows than their loader was asked for."""
    yield from _acting_note(kept)
    yield from _forward_note(kept)
    if _is_one_batch(kept):
        yield "every step trains on one and the same batch"
    yield from list(_rows_note(kept)) or _asked_note(kept)


def _asked_note(kept: KeptSteps) -> Iterator[str]:
    """Yield by which count samples are counted, of a loader whose batches have another number of rows than it."""
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number] if step.asked is not None]
    rows, asked = sum(step.samples or 0 for step in steps), sum(step.asked or 0 for step in steps)
    if not asked or not rows:
        return
    each = f"{rows / asked:.3g} rows each in the batches" if rows > asked else "joined to one row of a batch"
    if all(_samples(step) == step.asked for step in steps):
        yield f"samples are those that the loader was asked for, {each}"
    elif rows > asked:
        yield f"samples are rows of batches, {rows / asked:.3g} for each that the loader was asked for"


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
    counted = _counted(amounts.sum(axis=0)) if amount_of is _rows else _with_own_batch(kept, amounts)
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


def _with_own_batch(kept: KeptSteps, amounts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which steps count where a wrapper asks ahead: its first in an epoch asks for a batch more, its last less.

    The rows that went forward show these, since they are as many as in other steps.
    """
    steps = [step for number in kept.numbers for step in kept.attempt.steps[number]]
    usual = Counter(step.requests for step in steps).most_common(1)[0][0]
    sizes = {step.samples for step in steps if step.requests == usual and step.rows is None}
    ahead = kept.of_ranks(lambda step: float(step.requests != usual and step.rows in sizes)).sum(axis=0) > 0.0
    return ~ahead if 0 < 2 * ahead.sum() < len(ahead) else _counted(amounts.sum(axis=0))


def _counted(totals: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which steps count, of which a loop that asks ahead has one without a batch of its own at the end.

    At the ends of other epochs a step with two batches follows, which makes up for it.
    """
    empty = np.flatnonzero(totals == 0.0)
    double = int((totals > _DOUBLE * np.median(totals)).sum())
    counted = np.ones(len(totals), dtype=np.bool_)
    counted[empty[double:]] = False
    return counted
