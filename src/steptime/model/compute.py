"""Computing of one worker: by batch size, by layer, and beside other workers on the same processors.

Computing on an unmeasured device: the rates of its data sheet, in proportion to one that somebody did.

A roofline per layer (S. Williams et al., Commun. ACM 52 (2009) 65) knows neither kernels nor caches, so that its
uncertainty is stated and wide: a factor of 1.6 to either side is meant for nine of ten. Between published single-device
speeds of the K80 and the P100, the only pair that the evidence has, the logarithm of the error has a spread of 0.28.

Load imbalance: how much longer than the mean the slowest of p workers computes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.layers import Workload
from steptime.model.collectives import Real
from steptime.results.json_form import Interval
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


_TERA, _GIGA, _GIBI = 1e12, 1e9, 1024.0**3

LOG_SPREAD = 0.29
"""Standard deviation of the logarithm of the factor by which such a prediction is off: 1.64 of them are 1.6 times."""


@dataclass(frozen=True)
class Device:
    """What a vendor states."""

    name: str
    flop_rate: float
    """FLOPs per second in 32 bits, without tensor cores."""
    memory_rate: float
    """Bytes per second."""
    memory: float
    """Bytes."""
    tensor_rate: float | None = None
    """FLOPs per second of 16-bit matrix products, without sparsity; None if it has no units for them."""

    def rate(self, precision: str) -> float:
        """Return the FLOPs per second of a precision; 32 bits are computed without tensor cores."""
        return self.flop_rate if precision == "fp32" or self.tensor_rate is None else self.tensor_rate


def _device(name: str, tera_flops: float, gigabytes: float, memory: float, tensor: float | None = None) -> Device:
    rate = None if tensor is None else tensor * _TERA
    return Device(name, tera_flops * _TERA, gigabytes * _GIGA, memory * _GIBI, rate)


DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        _device("k80", 2.8, 240.0, 12),  # one of the card's two processors
        _device("p100", 9.3, 732.0, 16, 18.7),
        _device("v100", 15.7, 900.0, 32, 125.0),
        _device("t4", 8.1, 320.0, 16, 65.0),
        _device("rtx2080ti", 13.4, 616.0, 11, 53.8),
        _device("a100-40gb", 19.5, 1555.0, 40, 312.0),
        _device("a100-80gb", 19.5, 2039.0, 80, 312.0),
        _device("rtx3090", 35.6, 936.0, 24, 71.0),
        _device("a10", 31.2, 600.0, 24, 125.0),
        _device("l4", 30.3, 300.0, 24, 121.0),
        _device("rtx4090", 82.6, 1008.0, 24, 165.0),
        _device("h100-sxm", 66.9, 3350.0, 80, 989.0),
        _device("h200", 66.9, 4800.0, 141, 989.0),
    )
}
"""By name, from data sheets of their vendors."""


def transfer(
    flops: Sequence[float], traffic: Sequence[float], measured_on: Device, wanted: Device, precision: str = "fp32"
) -> Interval[float, float]:
    """Return the factor from seconds measured on one device to those on another.

    Args:
        flops: of each layer.
        traffic: bytes of each layer.
        measured_on: where seconds were measured.
        wanted: where they are asked for; on the same device the factor is 1 without uncertainty.
        precision: ``fp32``, or another for which tensor cores are used.
    """
    if measured_on == wanted:
        return Interval(1.0, 1.0, 1.0)
    here, there = (
        float(
            np.sum(
                roofline(np.asarray(flops, float), np.asarray(traffic, float), each.rate(precision), each.memory_rate)
            )
        )
        for each in (measured_on, wanted)
    )
    factor, reach = there / here, float(np.exp(1.645 * LOG_SPREAD))
    return Interval(factor, factor / reach, factor * reach)


def slowdown(shares: Sequence[float]) -> float:
    """Return how many times as long as an even worker the slowest computes, of processor shares: ``max_i 1/s_i``.

    >>> slowdown([1.0, 0.5])
    2.0
    """
    return max(1.0 / each for each in shares)
