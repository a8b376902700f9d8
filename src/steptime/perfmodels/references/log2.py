"""Each doubling of workers costs the same: ``a + b log2 p``."""

import numpy as np

from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.terms import fit_terms


def log2(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``a + b log2 p`` with a and b at least zero, by least squares of relative errors."""
    return fit_terms([np.ones_like, np.log2], workers, seconds, asked)
