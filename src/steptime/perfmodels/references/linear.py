"""Perfect scaling: the smallest measured step time, whatever the number of workers."""

import numpy as np

from steptime.perfmodels.references.curve_model import Array


def linear(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the time of the fewest workers for all."""
    del workers
    return np.full(len(asked), seconds[0])
