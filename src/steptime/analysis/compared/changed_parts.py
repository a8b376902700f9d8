"""Which parts of a user's own step changed from one side's runs to the other's."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.analysis.ablation.form import Difference
from steptime.analysis.compared.form import ChangedPart
from steptime.statistics.interval import half_width_between

Array = NDArray[np.float64]
PartTimes = Mapping[str, float | None]
"""Seconds of each part of a run's mean step; None of one that is not known."""


def changed_parts(first: Sequence[PartTimes], second: Sequence[PartTimes], *, in_turns: bool) -> list[ChangedPart]:
    """Return how much longer each part takes in the runs of the second side, the largest difference first.

    Runs are the unit: a part that one run does not have took no time in it, and one that a run does not know is left
    out. Intervals are Student's t of the differences of pairs, each at 95 % by itself; there is none of a single pair,
    and of sides that took no turns, between which the machine may have changed.

    Args:
        first: of each run of the baseline, in their order.
        second: of each run of the other side.
        in_turns: whether both have as many, and each took turns with the one of the same place.
    """
    names = dict.fromkeys(name for run in (*first, *second) for name in run)
    known = [name for name in names if all(run.get(name, 0.0) is not None for run in (*first, *second))]
    parts = []
    for name in known:
        before, after = (np.array([run.get(name) or 0.0 for run in side]) for side in (first, second))
        difference = _difference(before, after, in_turns=in_turns)
        part = ChangedPart(
            name=name, first_s=float(before.mean()), second_s=float(after.mean()), difference_s=difference
        )
        parts.append(part)
    return sorted(parts, key=lambda part: -abs(part.difference_s.value_s))


def _difference(before: Array, after: Array, *, in_turns: bool) -> Difference:
    value = float(after.mean() - before.mean())
    if not in_turns or len(before) == 1:
        return Difference(value_s=value, low_s=None, high_s=None)
    half_width = float(half_width_between(after - before))
    return Difference(value_s=value, low_s=value - half_width, high_s=value + half_width)
