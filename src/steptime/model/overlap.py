"""Communication behind the backward pass: which part of it the step still has to wait for."""

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Real

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
