"""Tolerances: how far a framework's losses and weights may be from the reference's, and how that is measured."""

import math

import numpy as np

from steptime.runner.equivalence.weight_stream import Weights, shape_of, together

# How far apart two frameworks may be that compute the same; more where the reference's own rounding is larger, see
# findings.py. bf16 keeps 8 bits of mantissa, 2^-8 = 0.4 %, which a few layers and steps multiply.
TOLERANCES = {
    "fp32": {"first_loss": 1e-4, "last_loss": 1e-2, "weights": 1e-4, "update": 1e-2},
    "bf16": {"first_loss": 2e-2, "last_loss": 1e-1, "weights": 5e-2, "update": 0.5},
}


def relative_error(value: float, expected: float) -> float:
    """Return |value - expected| / |expected|; infinite when either is not finite."""
    if not (math.isfinite(value) and math.isfinite(expected)):
        return math.inf
    return abs(value - expected) / max(abs(expected), 1e-12)


def weight_error(weights: Weights, expected: Weights) -> tuple[float, str]:
    """Return the largest distance of a weight from the reference, and the array in which it is.

    The distance within an array is relative to the largest weight of that array, but not below one hundredth: an
    array that starts at zero has only noise to be relative to.

    Raises ValueError when the arrays differ in name or shape.
    """
    _require_same_arrays(weights, expected)
    worst, where = 0.0, ""
    for name in expected:
        scale, difference = 1e-2, 0.0
        for values, truth in together(name, weights, expected):
            scale = max(scale, float(np.abs(truth).max()))
            # numpy's maximum is nan where one value is, Python's is not.
            difference = float(np.maximum(difference, np.abs(values - truth).max()))
        distance = difference / scale
        if not math.isfinite(distance):
            return math.inf, name
        if distance > worst:
            worst, where = distance, name
    return worst, where


def update_error(weights: Weights, expected: Weights, initial: Weights) -> tuple[float, str]:
    """Return how far the updates of an array are from the reference's, and the array in which that is largest.

    The distance is the Euclidean norm of the difference relative to that of the reference's whole update since
    ``initial``. It is about 1 where a worker's gradient was left out, whatever the size of the weights, and small
    where only rounding differs, which batch normalisation amplifies from step to step.

    Raises ValueError when the arrays differ in name or shape.
    """
    _require_same_arrays(weights, expected)
    worst, where = 0.0, ""
    for name in expected:
        squared_update, squared_distance = 0.0, 0.0
        for values, truth, start in together(name, weights, expected, initial):
            squared_update += float(np.sum((truth - start) ** 2))
            squared_distance += float(np.sum((values - truth) ** 2))
        distance = math.sqrt(squared_distance) / max(math.sqrt(squared_update), 1e-9)
        if not math.isfinite(distance):
            return math.inf, name
        if distance > worst:
            worst, where = distance, name
    return worst, where


def _require_same_arrays(weights: Weights, expected: Weights) -> None:
    if set(weights) != set(expected):
        missing, surplus = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
        message = f"weights are missing: {missing}, or are not of the workload: {surplus}"
        raise ValueError(message)
    for name in expected:
        shape, wanted = shape_of(weights, name), shape_of(expected, name)
        if shape != wanted:
            message = f"{name} has the shape {shape}, not {wanted}"
            raise ValueError(message)
