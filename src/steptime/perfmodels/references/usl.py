"""The universal scalability law: contention linear in the workers, and agreement between each pair of them."""

import numpy as np

from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.terms import fit_terms


def usl(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``T1 (1 + s (p-1) + k p (p-1))``, the step time that goes with its throughput ``p/T``."""
    return fit_terms([np.ones_like, lambda p: p - 1, lambda p: p * (p - 1)], workers, seconds, asked)
