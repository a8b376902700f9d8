"""Computing on an unmeasured device: the rates of its data sheet, in proportion to one that somebody did.

A roofline per layer (S. Williams et al., Commun. ACM 52 (2009) 65) knows neither kernels nor caches, so that its
uncertainty is stated and wide: a factor of 1.6 to either side is meant for nine of ten. Between published single-device
speeds of the K80 and the P100, the only pair that the evidence has, the logarithm of the error has a spread of 0.28.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.measurements.json_form import Interval
from steptime.predict.model.compute import roofline

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
