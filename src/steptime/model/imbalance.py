"""Waiting for the slowest: how much longer than the mean the last of p workers takes."""

import numpy as np
from scipy.special import log_ndtr  # type: ignore[import-untyped]  # scipy ships no types

from steptime.model.collectives import Real

_GRID = 4001
_REACH = 9.0
"""Standard deviations to either side between which the integral is taken."""


def expected_maximum(workers: float) -> float:
    """Return the mean of the largest of p standard normal numbers, without the asymptote that is 15 % off at p = 32.

    >>> round(expected_maximum(2), 4)
    0.5642
    """
    if workers <= 1:
        return 0.0
    x = np.linspace(-_REACH, _REACH, _GRID)
    reached = np.exp(workers * log_ndtr(x))
    return float(np.trapezoid(np.heaviside(x, 0.5) - reached, x))


def imbalance_factor(workers: float, persistent_cv: Real, transient_cv: Real = 0.0) -> Real:
    """Return the slowest worker's time over the mean: ``1 + m_p sqrt(v1^2 + v2^2)``.

    Every step waits for the slowest of that step, so that differences that stay and those that change add up as
    variances; only what stays can be cured by moving work.
    """
    factor: Real = 1 + expected_maximum(workers) * np.sqrt(np.square(persistent_cv) + np.square(transient_cv))
    return factor
