"""Traffic control: the bandwidth of links, and the delay of the packets that they carry."""

from dataclasses import dataclass

from steptime.launchers.emulation.network import INTERFACE, batch, namespace, port, switch
from steptime.launchers.emulation.owner import Owner

LATENCY_MS = 50
"""How long a packet may wait for its turn before it is dropped."""
_BURST_BYTES = 16 * 1024
"""From 50 to 200 Mbit/s: small against any model's gradients, large enough for the kernel to keep the rate."""
_SLOW, _FAST = 50e6, 200e6
_FAST_BURST_S = 2.4e-3
"""A busy machine serves the queue late; above 200 Mbit/s the burst must make up for more bytes meanwhile."""
_LEAST_BURST_BYTES = 3200
"""Two packets."""
_PACKET_BYTES = 1600
_LARGEST_GSO_BYTES = 65536


@dataclass(frozen=True)
class Shape:
    """The queue at both ends of one link."""

    rate_bits_per_s: int
    burst_bytes: int

    @property
    def gso_max_bytes(self) -> int:
        """The largest packet that the sender may hand to the queue: just below the burst, or it would be cut up."""
        return max(_PACKET_BYTES, min(self.burst_bytes - 1384, _LARGEST_GSO_BYTES))


def shape_for(bandwidth_bits_per_s: float | None) -> Shape | None:
    """Return the queue that keeps a link at its bandwidth; None for a link that nothing limits."""
    if bandwidth_bits_per_s is None:
        return None
    slow = min(1.0, bandwidth_bits_per_s / _SLOW)
    more = max(0.0, bandwidth_bits_per_s - _FAST) / 8 * _FAST_BURST_S
    burst = max(_LEAST_BURST_BYTES, round(_BURST_BYTES * slow + more))
    return Shape(round(bandwidth_bits_per_s), burst)


def shape_links(owner: Owner, shapes: list[Shape | None], delay_s: float) -> None:
    """Put the queues at both ends of every link; a delay, if any, is that of the host's end.

    Raises LaunchError when the kernel refuses something.
    """
    at_switch = [_rate(port(index), shape) for index, shape in enumerate(shapes) if shape]
    if at_switch:
        batch("tc", at_switch, switch(owner))
    for index, shape in enumerate(shapes):
        lines = [_rate(INTERFACE, shape)] if shape else []
        if delay_s:
            lines.append(_delay(shape, delay_s))
        if lines:
            batch("tc", lines, namespace(owner, index))


def _rate(device: str, shape: Shape) -> str:
    return (
        f"qdisc replace dev {device} root handle 1: tbf rate {shape.rate_bits_per_s}bit "
        f"burst {shape.burst_bytes} latency {LATENCY_MS}ms"
    )


def _delay(shape: Shape | None, delay_s: float) -> str:
    parent = "parent 1:1" if shape else "root"
    # What is on its way waits in this queue: ten times what the link carries meanwhile, so that nothing is dropped.
    rate = shape.rate_bits_per_s if shape else 1e10
    limit = 1000 + round(10 * delay_s * rate / 8 / _PACKET_BYTES)
    return f"qdisc replace dev {INTERFACE} {parent} handle 10: netem delay {round(delay_s * 1e6)}us limit {limit}"
