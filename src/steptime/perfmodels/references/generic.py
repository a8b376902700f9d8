"""The generic performance model: a power of the workers, with constants found by differential evolution."""

import numpy as np
from scipy.optimize import differential_evolution  # type: ignore[import-untyped]  # scipy ships no types

from steptime.perfmodels.references.curve_model import Array

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
