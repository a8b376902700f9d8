"""Sums of terms with coefficients that are not negative, fitted to relative errors."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]  # scipy ships no types

from steptime.perfmodels.references.curve_model import Array

Term = Callable[[Array], Array]


def fit_terms(terms: Sequence[Term], workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the fitted sum at ``asked``; rows are divided by the times, so that all points count alike."""
    columns = np.stack([term(workers) for term in terms], axis=1)
    coefficients, _ = nnls(columns / seconds[:, None], np.ones(len(seconds)))
    found: Array = np.stack([term(asked) for term in terms], axis=1) @ coefficients
    return found
