"""Amdahl's law at a constant batch per worker: a part of each worker's step that grows with the workers."""

import numpy as np

from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.terms import fit_terms


def amdahl(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``T1 ((1 - s) + s p)``: p batches of work of which the serial share s cannot be shared out."""
    return fit_terms([np.ones_like, np.asarray], workers, seconds, asked)
