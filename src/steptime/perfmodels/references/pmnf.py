"""The performance model normal form with one term: ``a + b p^i log2(p)^j``, its exponents chosen by the data."""

from functools import partial
from itertools import product

import numpy as np

from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.terms import Term, fit_terms

_POWERS = (0.0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0, 1.5, 2.0)
_LOGARITHMS = (0, 1, 2)


def pmnf(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the form that leaves the least relative squares; the simplest of equals.

    Choosing by cross-validation needs five points, which a curve seldom has; with fewer it chooses noise.
    """
    best, least = np.full(len(asked), seconds[-1]), np.inf
    for power, logarithm in product(_POWERS, _LOGARITHMS):
        terms: list[Term] = [np.ones_like, partial(_term, power=power, logarithm=logarithm)]
        loss = float(np.sum((fit_terms(terms, workers, seconds, workers) / seconds - 1) ** 2))
        if loss < least * (1 - 1e-6) - 1e-15:
            best, least = fit_terms(terms, workers, seconds, asked), loss
    return best


def _term(workers: Array, power: float, logarithm: int) -> Array:
    grown: Array = workers**power * np.log2(workers) ** logarithm
    return grown
