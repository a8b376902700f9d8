"""How much longer the slowest worker of a step computes than the mean one."""

from dataclasses import dataclass

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.model.collectives import Real

_GRID = 4001


_REACH = 9.0
"""Standard deviations to either side between which the integral is taken."""


def expected_maximum(workers: float) -> float:
    """Return the mean of the largest of p standard normal numbers, without the asymptote that is 27 % off at p = 32.

    >>> round(expected_maximum(2), 4)
    0.5642
    """
    if workers <= 1:
        return 0.0
    x = np.linspace(-_REACH, _REACH, _GRID)
    reached = np.exp(workers * scipy.special.log_ndtr(x))
    return float(np.trapezoid(np.heaviside(x, 0.5) - reached, x))


@dataclass(frozen=True)
class WorkerSpread:
    """How workers differ, as shares of their mean computing time.

    Differences are normal and independent. Every step waits for the slowest worker of that step, so that persistent
    and transient differences add up as variances.
    """

    persistent: Real = 0.0
    """Standard deviation between workers that lasts for a launch; moving work cures it."""
    transient: Real = 0.0
    """Standard deviation of a worker from step to step."""

    def imbalance_factor(self, workers: Real) -> NDArray[np.float64]:
        """Return the expected time of the slowest worker over the mean: ``1 + m_p sqrt(v1^2 + v2^2)``.

        m_p is ``expected_maximum(p)``.
        """
        every = np.asarray(workers, float)
        known, where = np.unique(every, return_inverse=True)
        largest = np.array([expected_maximum(float(each)) for each in known])[where].reshape(every.shape)
        return np.asarray(1.0 + largest * np.hypot(self.persistent, self.transient), float)


BALANCED = WorkerSpread()
"""Workers that do not differ."""
