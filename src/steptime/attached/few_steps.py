"""Parts of a step that lie in few of the steps, such as a shard that is opened before every fifth batch.

Of these the mean over all steps is the length of none: it is shown how many steps have it, how regularly they come, how
long it takes in them, and how long in the others.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.attached.form import FewSteps
from steptime.results.json_form import Interval
from steptime.statistics.interval import mean_within
from steptime.units import format_count

Array = NDArray[np.float64]

_FEWEST = 3
"""Steps that have a part, from which on they are more than exceptions."""
_MOST_SHARE, _MOST_REGULAR_SHARE = 0.34, 0.5
"""Of all steps, that have it at most, and if they come regularly: more are the rule."""
_TIMES = 1.5
"""What it takes in the others, that it takes in them at least."""
_NOTABLE = 0.05
"""Of the time of all steps, that it takes in them at least beyond what it takes in the others."""
_APART = 0.4
"""Of the distance between the two means, the least distance of the tenth next to the other steps on either side."""
_EXCEPTIONS = 3
"""How often values of fewer steps than ``_FEWEST`` are set aside to look at the others."""
_REGULAR = 0.5
"""Of the mean distance between two steps, by which distances may differ where they come regularly."""
_PUNCTUAL = 0.8
"""Of the steps at a distance, that have what comes at it; and of those that have it, that lie at it."""
_ADJOINING = 1.5
"""Steps between two, below which they come one after the other."""
_ONE_RANK = 1.5
"""Times the mean over ranks, from which on the rank that a part takes longest is another matter."""


def few_steps(numbers: Sequence[int], seconds: Array, total_s: float) -> FewSteps | None:
    """Return in which few steps a part lies; None if it lies in most, or is too short to matter.

    Args:
        numbers: of the steps.
        seconds: of the part, ranks x steps: of each step counts the rank that it takes longest.
        total_s: of all steps, mean over ranks.
    """
    longest = seconds.max(axis=0)
    if len(longest) <= _FEWEST or total_s <= 0.0:
        return None
    has = _upper(longest)
    count = int(has.sum())
    if count < _FEWEST or count > _MOST_REGULAR_SHARE * len(longest):
        return None
    own, others = longest[has], longest[~has]
    apart = float(np.quantile(own, 0.1) - np.quantile(others, 0.9))
    distance = float(own.mean() - others.mean())
    if apart < _APART * distance or own.mean() < _TIMES * others.mean() or count * distance < _NOTABLE * total_s:
        return None
    at = np.array(numbers)
    every = regular_distance(at[has], at, _PUNCTUAL)
    if every is None and count > _MOST_SHARE * len(longest):
        return None
    each_s = mean_within(own)
    return FewSteps(
        numbers=at[has].tolist(),
        steps=len(longest),
        every=float(np.diff(at[has]).mean()) if every is None else every,
        regular=every is not None,
        each_s=Interval(each_s.value, each_s.low, each_s.high),
        others_s=float(others.mean()),
        share=float(own.sum()) / total_s,
        one_rank=bool(own.mean() >= _ONE_RANK * seconds.mean(axis=0)[has].mean()),
    )


def _upper(values: Array) -> NDArray[np.bool_]:
    """Return which values are of the upper of two groups, whose means differ most for what values differ within.

    A group of fewer than ``_FEWEST`` exceptions is as long as the longest of the others, which are parted anew.
    """
    cut = values
    for _ in range(_EXCEPTIONS):
        order = np.sort(cut)
        sums, below = np.cumsum(order), np.arange(1, len(order))
        means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (len(order) - below)
        between = below * (len(order) - below) * (means[1] - means[0]) ** 2
        place = int(between.argmax())
        upper = np.asarray(cut > (order[place] + order[place + 1]) / 2.0, dtype=np.bool_)
        if upper.sum() >= _FEWEST:
            return upper
        cut = np.minimum(cut, order[place])
    return np.zeros(len(values), dtype=np.bool_)


def mean_with_few(seconds: Array, few: FewSteps, numbers: Sequence[int]) -> Interval:
    """Return the mean of a part that comes regularly in few steps, which are as many in any as long a stretch.

    Its interval is of what the part takes in them and in the others, and of one step more or fewer of them.

    Args:
        seconds: of each step, mean over ranks.
        few: those steps.
        numbers: of all.
    """
    has = np.isin(numbers, few.numbers)
    share, value = float(has.mean()), float(seconds.mean())
    own, others = mean_within(seconds[has]), mean_within(seconds[~has])
    if own.low is None or own.high is None or others.low is None or others.high is None:
        return Interval(value, None, None)
    edge_s = (own.value - others.value) / len(seconds)
    lower = np.hypot(share * (own.value - own.low), (1.0 - share) * (others.value - others.low))
    upper = np.hypot(share * (own.high - own.value), (1.0 - share) * (others.high - others.value))
    return Interval(value, max(0.0, value - float(np.hypot(lower, edge_s))), value + float(np.hypot(upper, edge_s)))


def regular_distance(own: NDArray[np.int64], numbers: NDArray[np.int64], punctual: float = 1.0) -> float | None:
    """Return after how many steps some come again; None if their distances differ.

    Args:
        own: their numbers, two at least.
        numbers: of all steps that are looked at, some of which may be left out.
        punctual: share of theirs that must lie at this distance.
    """
    distances = np.diff(own)
    period = int(np.median(distances))
    if period > 1:
        residues = own % period
        usual = int(np.bincount(residues).argmax())
        due = numbers[(numbers % period == usual) & (numbers >= own[0]) & (numbers <= own[-1])]
        if (residues == usual).mean() >= punctual and np.isin(due, own).mean() >= _PUNCTUAL:
            return float(period)
    return float(distances.mean()) if np.ptp(distances) <= max(1.0, _REGULAR * float(distances.mean())) else None


def which_steps(few: FewSteps) -> str:
    """Return how many steps there are, and how they come: ``19 of 95 steps, one in 5,``."""
    count = f"{len(few.numbers)} of {format_count(few.steps, 'step')}"
    return f"{count}, {how_regular(few.every if few.regular else None)},"


def how_regular(every: float | None) -> str:
    """Return how steps come: ``one in 5``, ``one after the other`` or ``at no regular distance``."""
    if every is None:
        return "at no regular distance"
    return "one after the other" if every < _ADJOINING else f"one in {every:.3g}"
