"""Computing of one worker: by batch size, by layer, and beside other workers on the same processors."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.layers import Workload
from steptime.predict.model.collectives import Real
from steptime.worker.communication import Gradient, LayerWork, Work

_VALUE_BYTES = 4


def work_of(workload: Workload, value_bytes: int = _VALUE_BYTES) -> Work:
    """Return the work of one step and sample of a workload.

    Args:
        workload: the trained network.
        value_bytes: width of an activation; gradients travel in 32 bits.
    """
    layers = []
    blocks = _blocks(workload)
    for place, (layer, cost) in enumerate(zip(workload.layers, costs(workload, value_bytes).layers, strict=True)):
        values_read = sum(prod(shape) for shape in layer.input_shapes)
        layers.append(
            LayerWork(
                name=layer.name,
                kind=layer.kind,
                forward_flops=cost.forward_flops,
                backward_flops=cost.backward_flops,
                traffic=float((values_read + prod(layer.output_shape)) * value_bytes),
                gradients=tuple(
                    Gradient(parameter.name, place, parameter.count * _VALUE_BYTES) for parameter in layer.parameters
                ),
                block=blocks[place],
            )
        )
    return Work(workload.name, tuple(layers))


def _blocks(workload: Workload) -> list[int]:
    """Return the block of every layer: a new one begins where only the newest output is read later."""
    last_read = {name: place for place, layer in enumerate(workload.layers) for name in layer.inputs}
    blocks, block, alive = [], 0, set[str]()
    for place, layer in enumerate(workload.layers):
        blocks.append(block)
        alive = {name for name in (*alive, *layer.inputs, layer.name) if last_read.get(name, -1) > place}
        if alive <= {layer.name}:
            block += 1
    return blocks


Array = NDArray[np.float64]

BALANCE = 10.0
"""FLOPs per byte of an unmeasured processor; only proportions of a measured time depend on it."""


def pass_seconds(batch: Real, fixed: Real, per_sample: Real) -> Real:
    """Return the seconds of a forward or backward pass, affine in the batch: ``c0 + c1 b``.

    >>> float(pass_seconds(32, fixed=0.01, per_sample=0.001))
    0.042
    """
    return fixed + per_sample * batch


def turns(workers: int, processors: int) -> int:
    """Return how many workers take turns on a processor: ``ceil(p/c)``, since the slowest processor decides.

    With three workers on two processors a step takes twice as long, not one and a half times.

    >>> turns(3, 2)
    2
    """
    return max(1, -(-workers // processors))


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
