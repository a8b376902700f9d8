"""How long one worker computes: by batch size, by layer, and on another device."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.perfmodels.communication.link import Real


def step_seconds(batch: Real, per_step: Real, per_sample: Real, floor: Real = 0.0) -> Real:
    """Return ``max(floor, c0 + c1 b)``: affine in the batch, and never quicker than its kernels can be started.

    >>> float(step_seconds(32, per_step=0.01, per_sample=0.001))
    0.042
    """
    seconds: Real = np.maximum(floor, per_step + per_sample * batch)
    return seconds


def turns(workers: Real, cores: Real) -> Real:
    """Return how many workers take turns on a core: ``ceil(p/c)``, since the slowest core decides.

    With three workers on two cores a step takes twice as long, not one and a half times.

    >>> float(turns(3, 2))
    2.0
    """
    count: Real = np.maximum(1.0, np.ceil(np.asarray(workers, float) / cores))
    return count


def roofline(flops: Real, traffic: Real, flop_rate: Real, memory_rate: Real) -> Real:
    """Return the seconds of work that either computes or waits for memory: ``max(F/R, M/B)``.

    >>> float(roofline(2e9, 1e9, flop_rate=1e9, memory_rate=1e9))
    2.0
    """
    seconds: Real = np.maximum(flops / flop_rate, traffic / memory_rate)
    return seconds


def layer_seconds(
    total: float, flops: Sequence[float], traffic: Sequence[float], flop_rate: float, memory_rate: float
) -> NDArray[np.float64]:
    """Split a measured time over layers in proportion to a roofline of each; the parts add up to ``total``."""
    weights = np.asarray(roofline(np.asarray(flops, float), np.asarray(traffic, float), flop_rate, memory_rate), float)
    whole = weights.sum()
    return total * (weights / whole if whole > 0 else np.full(len(weights), 1 / max(len(weights), 1)))
