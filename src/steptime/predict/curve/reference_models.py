"""Reference models of a whole curve: measured workers and seconds in, seconds for other workers out.

Sums of terms have coefficients that are not negative, fitted to relative errors. The first three models are the nulls
that a performance model has to beat.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution, nnls  # type: ignore[import-untyped]  # scipy ships no types

Array = NDArray[np.float64]


class CurveModel(Protocol):
    """Fits a curve of step times, sorted by workers, and predicts others."""

    def __call__(self, workers: Array, seconds: Array, asked: Array) -> Array:
        """Return the seconds of a step with ``asked`` workers, given those measured."""
        ...


Term = Callable[[Array], Array]


def fit_terms(terms: Sequence[Term], workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the fitted sum at ``asked``; rows are divided by the times, so that all points count alike."""
    columns = np.stack([term(workers) for term in terms], axis=1)
    coefficients, _ = nnls(columns / seconds[:, None], np.ones(len(seconds)))
    found: Array = np.stack([term(asked) for term in terms], axis=1) @ coefficients
    return found


def amdahl(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``T1 ((1 - s) + s p)``: p batches of work of which the serial share s cannot be shared out."""
    return fit_terms([np.ones_like, np.asarray], workers, seconds, asked)


_BOUNDS = ((0.0, 2.0), (0.0, 2.0), (0.0, 2.0))
"""Of a and C, both over the smallest time, and of the exponent q."""
_PENALTY = 1e-4
"""On the squares of a and q: of equals, the flatter curve is chosen."""
_SEED = 20240531
_GENERATIONS = 60


def generic(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``(a p^q + C) T1`` with the least regularised squares of relative errors.

    The model multiplies a sum of powers of intrinsic factors (batch, layers) by powers of extrinsic ones (workers) and
    adds a constant; along one curve the intrinsic factors do not change and become a. Source: T. Kavarakuntla et al.,
    *A generic performance model for deep learning in a distributed environment*, IEEE Access, 2024.
    """
    scale = float(seconds.min())

    def cost(constants: Array) -> Array:
        errors = _form(constants, workers) * scale / seconds[:, None] - 1
        squares: Array = np.mean(errors**2, axis=0) + _PENALTY * (constants[0] ** 2 + constants[2] ** 2)
        return squares

    found = differential_evolution(
        cost, _BOUNDS, maxiter=_GENERATIONS, popsize=12, seed=_SEED, vectorized=True, updating="deferred", polish=False
    )
    return _form(found.x[:, None], asked)[:, 0] * scale


def _form(constants: Array, workers: Array) -> Array:
    """Return the relative times of candidates, (points, candidates)."""
    factor, constant, power = constants
    grown: Array = factor * workers[:, None] ** power + constant
    return grown


def last(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the time of the most workers for all."""
    del workers
    return np.full(len(asked), seconds[-1])


def linear(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the time of the fewest workers for all."""
    del workers
    return np.full(len(asked), seconds[0])


def log2(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``a + b log2 p`` with a and b at least zero, by least squares of relative errors."""
    return fit_terms([np.ones_like, np.log2], workers, seconds, asked)


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


def usl(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``T1 (1 + s (p-1) + k p (p-1))``, the step time that goes with its throughput ``p/T``."""
    return fit_terms([np.ones_like, lambda p: p - 1, lambda p: p * (p - 1)], workers, seconds, asked)


NULLS: Mapping[str, CurveModel] = {"linear": linear, "last": last, "log2": log2}

REFERENCES: Mapping[str, CurveModel] = {**NULLS, "amdahl": amdahl, "usl": usl, "pmnf": pmnf, "generic": generic}
