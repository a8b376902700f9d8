"""The slowest of p workers: expected, or drawn step by step, at a cost that does not depend on p."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri, ndtri_exp  # type: ignore[import-untyped]  # scipy ships no types

from steptime.model.collectives import Real
from steptime.model.imbalance import expected_maximum

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """How workers differ, as shares of their mean computing time."""

    persistent: Real = 0.0
    """Standard deviation between workers that lasts for a launch."""
    transient: Real = 0.0
    """Standard deviation of a worker from step to step."""

    def expected(self, workers: Real) -> Array:
        """Return the expected time of the slowest over the mean: ``1 + m_p sqrt(v1^2 + v2^2)``."""
        every = np.asarray(workers, float)
        known, where = np.unique(every, return_inverse=True)
        largest = np.array([expected_maximum(float(each)) for each in known])[where].reshape(every.shape)
        return np.asarray(1.0 + largest * np.hypot(self.persistent, self.transient), float)


_GRID = 2001
_REACH = 9.0
"""Standard deviations to either side between which the integral is taken."""


def expected_of_hosts(factors: Sequence[float], workers: Sequence[int], spread: Spread) -> float:
    """Return the expected time of the slowest over the mean of an ordinary worker, where some hosts are slow.

    The mean of the largest of independent normal numbers that have several means, by integrating the product of
    their distributions.

    Args:
        factors: how long computing takes on each kind of host; 1 on an ordinary one.
        workers: how many workers each kind has.
        spread: of workers on hosts of one kind, in proportion to their own time.

    >>> round(expected_of_hosts([1.0, 2.0], [3, 1], Spread()), 6)
    2.0
    """
    means, counts = np.asarray(factors, float), np.asarray(workers, float)
    deviations = means * float(np.hypot(spread.persistent, spread.transient))
    means, deviations, counts = means[counts > 0], deviations[counts > 0], counts[counts > 0]
    if not deviations.any():
        return float(means.max())
    low, high = (means - _REACH * deviations).min(), (means + _REACH * deviations).max()
    x = np.linspace(low, high, _GRID * len(means))
    below = (counts[:, None] * log_ndtr((x - means[:, None]) / deviations[:, None])).sum(axis=0)
    return float(high - np.trapezoid(np.exp(below), x))


EVEN = Spread()
"""Workers that do not differ."""


def largest_of(uniform: Array, workers: Real) -> Array:
    """Return the largest of p standard normal numbers from one uniform number: ``F^-1(u^(1/p))``.

    In logarithms, since u^(1/p) rounds to 1 for many workers.

    >>> bool(abs(largest_of(np.array(0.5), 1)) < 1e-12)
    True
    """
    found: Array = ndtri_exp(np.log(uniform) / np.asarray(workers, float))
    return found


def classes_of(workers: int, single: int = 16) -> tuple[Array, Array]:
    """Return how workers of a normal spread part into classes: standard scores, and how many workers have each.

    The few slowest, who decide when a step ends, are each a class of their own; towards the mean classes double in
    size. Scores are those of Blom for the ranks, averaged over each class. Their number grows as log2 p.

    Args:
        workers: p.
        single: how many workers are told apart at the slow end.
    """
    sizes = [1] * min(workers, single)
    left, width = workers - len(sizes), 2
    while left > 0:
        sizes.append(min(width, left))
        left -= sizes[-1]
        width *= 2
    counts = np.array(sizes, float)
    upper = np.cumsum(counts)
    middle = upper - (counts - 1) / 2
    scores: Array = -ndtri((middle - 0.375) / (workers + 0.25))
    return scores, counts


def _launch_of(workers: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Return classes as ``classes_of`` does, with the slowest workers where one launch happens to have them.

    The largest of p uniform numbers is u^(1/p), the next the largest of p-1 below it, and so on.
    """
    scores, counts = classes_of(workers)
    single = int((np.cumsum(counts) == np.arange(1, len(counts) + 1)).sum())
    logarithms = np.cumsum(np.log(generator.random(single)) / (workers - np.arange(single)))
    scores[:single] = ndtri_exp(logarithms)
    scores[single:] = np.minimum(scores[single:], scores[single - 1])
    return scores, counts


def draw_slowest(spread: Spread, workers: int, steps: int, generator: np.random.Generator) -> Array:
    """Return the slowest worker's time over the mean for every step of a launch, (steps,).

    What persists is drawn once for the launch; each step draws the largest transient part of every class of workers.
    """
    if workers <= 1:
        return np.asarray(1.0 + float(spread.transient) * generator.standard_normal(steps), float)
    if float(spread.persistent) <= 0.0:
        return 1.0 + float(spread.transient) * largest_of(generator.random(steps), workers)
    scores, counts = _launch_of(workers, generator)
    lasting = float(spread.persistent) * scores
    passing = float(spread.transient) * largest_of(generator.random((steps, len(counts))), counts)
    slowest: Array = 1.0 + (lasting + passing).max(axis=1)
    return slowest
