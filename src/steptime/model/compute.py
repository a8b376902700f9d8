"""How long one worker computes: by batch size, by layer, and on another device.

How a worker's measured computing parts into layers, by their arithmetic and traffic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Real


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


Array = NDArray[np.float64]

BALANCE = 10.0
"""FLOPs per byte of a processor whose rates nobody measured; what is split is measured, so only proportions count."""


@dataclass(frozen=True)
class Shares:
    """Of each layer in the order of the forward pass, (layers,); each array adds up to 1."""

    forward: Array
    backward: Array

    @property
    def passed(self) -> Array:
        """Share of the backward pass that is over when that of a layer is; 1 at the first layer."""
        behind: Array = np.cumsum(self.backward[::-1])[::-1]
        return behind / behind[0] if len(behind) and behind[0] > 0 else np.ones(len(behind))

    @property
    def reached(self) -> Array:
        """Share of the forward pass that is over when a layer begins."""
        return np.cumsum(self.forward) - self.forward


def launched_seconds(
    flops: Sequence[float], traffic: Sequence[float], batch: float, device: tuple[float, float], launch: float
) -> Array:
    """Return the seconds of each layer for a batch: those of its roofline, and at least those of starting its kernel.

    What makes small batches take as long as less small ones on devices: ``max(l, b max(F/R, M/B))`` (layers,).

    Args:
        flops: of each layer, per sample.
        traffic: bytes of each layer, per sample.
        batch: samples.
        device: FLOPs and bytes per second that it reaches.
        launch: seconds that starting a layer takes; layers without work need no start.
    """
    work = np.asarray(roofline(np.asarray(flops, float), np.asarray(traffic, float), *device), float)
    return np.asarray(np.where(work > 0, np.maximum(launch, batch * work), 0.0), float)


def layer_shares(
    forward_flops: Sequence[float], backward_flops: Sequence[float], traffic: Sequence[float], balance: float = BALANCE
) -> Shares:
    """Return shares by a roofline of each layer: what either computes or waits for memory.

    Args:
        forward_flops: of each layer.
        backward_flops: of each layer.
        traffic: bytes that each reads and writes going forward; backward it is about twice as much, once for the
            gradient of the output with the input, and once for that of the input.
        balance: FLOPs that the processor does in the time of one byte.
    """
    backward_traffic = 2.0 * np.asarray(traffic, float) * (np.asarray(backward_flops, float) > 0)
    return Shares(
        layer_seconds(1.0, forward_flops, traffic, balance, 1.0),
        layer_seconds(1.0, backward_flops, list(backward_traffic), balance, 1.0),
    )
