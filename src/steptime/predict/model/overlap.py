"""Overlap: which part of communication and of input a step still has to wait for.

Source of both formulas for communication: S. Shi et al., arXiv 1805.03812 and 1811.11141.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.predict.model.collectives import Real

Array = NDArray[np.float64]


def finish(ready: Array, lasting: Array) -> Array:
    """Return when the last bucket has arrived, with buckets sent one after the other in the order of the last axis.

    ``s_k = max(s_{k-1} + t_{k-1}, e_k)``, as ``C_n + max_k(e_k - C_{k-1})`` with C the sums of durations so far.

    Args:
        ready: seconds at which each bucket's gradients are there, (..., buckets).
        lasting: seconds that each bucket's exchange takes, same shape.

    >>> float(finish(np.array([1.0, 2.0]), np.array([3.0, 1.0])))
    5.0
    """
    sums = np.cumsum(lasting, axis=-1)
    latest: Array = sums[..., -1] + np.max(ready - (sums - lasting), axis=-1)
    return latest


def waited(computing: Sequence[float], starts: Sequence[bool], lasting: Sequence[float]) -> float:
    """Return the seconds that a thread waits which starts messages and waits for them, the first started first.

    Messages go one after the other.

    Args:
        computing: seconds before each call.
        starts: whether the call starts a message, or waits for the oldest one still under way.
        lasting: seconds of the message that a call starts.

    >>> waited([1.0, 0.0, 2.0, 0.0], [True, True, False, False], [3.0, 1.0, 0.0, 0.0])
    2.0
    """
    now = free = seconds = 0.0
    under_way: deque[float] = deque()
    for before, is_start, lasts in zip(computing, starts, lasting, strict=True):
        now += before
        if is_start:
            free = max(free, now) + lasts
            under_way.append(free)
        elif under_way:
            arrived = under_way.popleft()
            seconds += max(0.0, arrived - now)
            now = max(now, arrived)
    return seconds


def exposed(communication: Real, window: Real, hidden_share: Real) -> Real:
    """Return the seconds of communication that a step waits for, where only totals are known.

    A share of it may hide behind a window of computing, and what does not fit there is waited for:
    ``(1-o) T + max(0, o T - w)``.

    Args:
        communication: T, seconds of all exchanges of a step.
        window: w, seconds of computing during which gradients travel.
        hidden_share: o, the share of T that the framework starts early enough.
    """
    early = hidden_share * communication
    seconds: Real = communication - early + np.maximum(0.0, early - window)
    return seconds


def input_wait(reading: Real, waited_share: Real, *beside: Real) -> Real:
    """Return the seconds that a step waits for its batch: ``max(s R, R - T)``.

    The loader reads beside the step, so that only what takes longer than the rest of the step is waited for, and at
    least a share of the reading that was measured not to overlap.

    Args:
        reading: R, seconds that the loader takes for a batch.
        waited_share: s.
        beside: the parts of the rest of the step, seconds that add up to T.
    """
    left = reading
    for part in beside:
        left = left - part
    seconds: Real = np.maximum(waited_share * reading, left)
    return seconds
