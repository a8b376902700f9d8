"""Student's t distribution."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy ships no types


def t_reach(freedom: float | NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Return how many standard errors to each side hold ``level`` of a t distribution with ``freedom`` degrees."""
    reach: NDArray[np.float64] = stdtrit(freedom, 0.5 + 0.5 * level)
    return reach
