"""Nothing changes any more: the step time of most workers measured repeats."""

import numpy as np

from steptime.perfmodels.references.curve_model import Array


def last(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the time of the most workers for all."""
    del workers
    return np.full(len(asked), seconds[-1])
