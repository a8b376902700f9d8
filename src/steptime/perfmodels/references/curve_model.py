"""What a reference model of a whole curve is: measured workers and seconds in, seconds for other workers out."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class CurveModel(Protocol):
    """Fits a curve of step times, sorted by workers, and says what it becomes for others."""

    def __call__(self, workers: Array, seconds: Array, asked: Array) -> Array:
        """Return the seconds of a step with ``asked`` workers, given those measured."""
        ...
