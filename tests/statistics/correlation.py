"""Step times with known truth."""

import numpy as np
import scipy  # its modules are imported when used
from numpy.typing import NDArray

SPREAD = 0.05
"""Standard deviation of the logarithm of a step time."""


def correlated(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> NDArray[np.float64]:
    """Return standard normal series along the last axis, each value ``phi`` times the one before plus something new."""
    settling = 100
    new = rng.normal(size=(*shape[:-1], shape[-1] + settling))
    series: NDArray[np.float64] = scipy.signal.lfilter([np.sqrt(1.0 - phi**2)], [1.0, -phi], new, axis=-1)[
        ..., settling:
    ]
    return series


def log_step_times(
    rng: np.random.Generator, shape: tuple[int, int, int], phi: float, effect: float
) -> NDArray[np.float64]:
    """Return logarithms of step times with median 0, by repetition, launch and step.

    Args:
        rng: where they come from.
        shape: repetitions, launches, steps.
        phi: correlation of a step with the one before.
        effect: standard deviation of what a launch has of its own, relative to that of its median without it.
    """
    within = SPREAD * correlated(rng, shape, phi)
    alone = np.median(SPREAD * correlated(rng, (2000, 1, shape[2]), phi), axis=-1).std()
    own: NDArray[np.float64] = effect * alone * rng.normal(size=(*shape[:2], 1))
    return within + own


def with_stalls(
    rng: np.random.Generator, times: NDArray[np.float64], period: int, length_s: float
) -> NDArray[np.float64]:
    """Return step ``times`` of which every ``period``-th is longer, from anywhere in the period of each series."""
    first = rng.integers(0, period, (*times.shape[:-1], 1))
    stalled: NDArray[np.float64] = times + length_s * ((np.arange(times.shape[-1]) + first) % period == 0)
    return stalled
