"""How a worker's measured computing parts into layers, by their arithmetic and traffic."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.perfmodels.compute import layer_seconds, roofline

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
