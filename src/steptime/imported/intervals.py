"""Sets of time intervals: union, difference and common part, as arrays of begins and ends."""

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.float64]
"""Rows of begin and end, apart from one another and ascending."""
_Mask = NDArray[np.bool_]


def union(rows: Intervals) -> Intervals:
    """Return intervals that may overlap as such that do not."""
    rows = rows[rows[:, 1] > rows[:, 0]]
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reached = np.maximum.accumulate(rows[:, 1])
    begins = np.concatenate(([True], rows[1:, 0] > reached[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.column_stack((rows[begins, 0], reached[ends]))


def difference(one: Intervals, other: Intervals) -> Intervals:
    """Return what of ``one`` does not lie in ``other``."""
    return _combined(one, other, lambda a, b: a & ~b)


def common(one: Intervals, other: Intervals) -> Intervals:
    """Return what lies in both."""
    return _combined(one, other, lambda a, b: a & b)


def length(rows: Intervals) -> float:
    """Return how long intervals are together."""
    return float((rows[:, 1] - rows[:, 0]).sum())


def within(rows: Intervals, begin: float, end: float) -> Intervals:
    """Return what of intervals lies in a window."""
    chosen = rows[(rows[:, 1] > begin) & (rows[:, 0] < end)]
    return np.clip(chosen, begin, end)


def _combined(one: Intervals, other: Intervals, keep: Callable[[_Mask, _Mask], _Mask]) -> Intervals:
    times = np.concatenate((one[:, 0], one[:, 1], other[:, 0], other[:, 1]))
    steps = np.zeros((2, len(times)), dtype=np.int64)
    count, others = len(one), len(other)
    steps[0, :count], steps[0, count : 2 * count] = 1, -1
    steps[1, 2 * count : 2 * count + others], steps[1, 2 * count + others :] = 1, -1
    order = np.argsort(times, kind="stable")
    times = times[order]
    inside = np.cumsum(steps[:, order], axis=1) > 0
    chosen = keep(inside[0, :-1], inside[1, :-1]) & (times[1:] > times[:-1])
    return cast("Intervals", np.column_stack((times[:-1][chosen], times[1:][chosen])))
