"""The network of emulated hosts: a network namespace for each, joined by a switch, with one link per host.

The commands ``ip`` and ``tc`` make it, since they know more of the kernel than Python does.

Traffic control: the bandwidth of links, and the delay of the packets that they carry.

The delay switch: the program ``packet_relay``, started and ended, for kernels that cannot delay packets.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from steptime.errors import LaunchError
from steptime.launchers.emulation.control_groups import Owner
from steptime.launchers.namespaces import within

T = TypeVar("T")


def within_host(namespace: Path, act: Callable[[], T]) -> T:
    """Return what ``act`` returns in a thread that is in the network ``namespace``; raises LaunchError, not OSError."""
    try:
        return within(namespace, act)
    except OSError as error:
        message = f"within {namespace.name}: {error}"
        raise LaunchError(message) from error


_LIMIT_S = 60.0


def batch(tool: str, lines: Sequence[str], namespace: str | None = None) -> None:
    """Run many commands of ``ip`` or ``tc`` in one process, within a namespace if one is named.

    Raises LaunchError with what the tool said and the command that it said it about.
    """
    where = ["-n", namespace] if namespace else []
    done = _run([tool, *where, "-batch", "-"], "".join(f"{line}\n" for line in lines))
    if done.returncode:
        said = " ".join(done.stderr.split())
        message = f"{tool} could not make the emulated cluster: {said}; it was told: {'; '.join(lines)}"
        raise LaunchError(message)


def ask(tool: str, *arguments: str, namespace: str) -> list[dict[str, Any]]:
    """Return what ``ip`` or ``tc`` shows of a namespace; raises LaunchError when it shows nothing."""
    # With details, tc rounds the burst and adds words to it; without them, ip does not say gso_max_size.
    flags = ["-j", "-s", "-d"] if tool == "ip" else ["-j"]
    done = _run([tool, "-n", namespace, *flags, *arguments], "")
    if done.returncode:
        message = f"{tool} {' '.join(arguments)} of {namespace} failed: {' '.join(done.stderr.split())}"
        raise LaunchError(message)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


def attempt(*command: str) -> bool:
    """Run a command whose failure is an answer; return whether it did not fail."""
    return _run(list(command), "").returncode == 0


def _run(command: list[str], given: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{command[0]} could not be run: {error}"
        raise LaunchError(message) from error


NAMESPACES = Path("/run/netns")
INTERFACE = "eth0"
BITS = 16
_FREE = 1
"""Addresses of the network before that of the first host."""


def host_name(index: int) -> str:
    """The name that host ``index`` believes to have."""
    return f"h{index}"


def address(index: int) -> str:
    """The address of host ``index``; every launch has a network of its own, so all launches use the same."""
    high, low = divmod(index + _FREE, 256)
    return f"10.77.{high}.{low}"


def port(index: int) -> str:
    """The switch's end of the link to host ``index``."""
    return f"p{index}"


def switch(owner: Owner) -> str:
    """The namespace that holds the switch."""
    return owner.name("sw")


def namespace(owner: Owner, index: int) -> str:
    """The namespace of host ``index``."""
    return owner.name(host_name(index))


def hosts_file(count: int) -> str:
    """The content of ``/etc/hosts`` on every host."""
    names = [f"{address(index)} {host_name(index)}" for index in range(count)]
    return "".join(f"{line}\n" for line in ["127.0.0.1 localhost", "::1 localhost", *names])


def make_network(owner: Owner, gso_max_bytes: Sequence[int | None]) -> None:
    """Make the switch and a host at each of its ports.

    Args:
        owner: whose they are.
        gso_max_bytes: for each host the largest packet that may go to its link's queue, whose burst it must fit.

    Raises LaunchError when the kernel refuses something.
    """
    count = len(gso_max_bytes)
    spaces = [switch(owner), *(namespace(owner, index) for index in range(count))]
    batch("ip", [f"netns add {name}" for name in spaces])
    batch(
        "ip",
        [
            "link add name br0 type bridge",
            "link set br0 up",
            *(
                f"link add name {port(index)} type veth peer name {INTERFACE} netns {namespace(owner, index)}"
                for index in range(count)
            ),
            *(
                f"link set {port(index)} master br0 {_size(gso_max_bytes[index])}addrgenmode none up"
                for index in range(count)
            ),
        ],
        switch(owner),
    )
    for index in range(count):
        lines = [
            "link set lo up",
            # No addresses that were not asked for: some libraries take the first one of an interface.
            f"link set {INTERFACE} {_size(gso_max_bytes[index])}addrgenmode none",
            f"addr add {address(index)}/{BITS} dev {INTERFACE}",
            f"link set {INTERFACE} up",
        ]
        batch("ip", lines, namespace(owner, index))


def _size(gso_max_bytes: int | None) -> str:
    return f"gso_max_size {gso_max_bytes} " if gso_max_bytes else ""


def remove_network(owner: Owner) -> None:
    """Remove all namespaces of ``owner``, and with them their interfaces; one that is missing is not a failure."""
    for path in sorted(NAMESPACES.glob(f"{owner.mark}-*")):
        attempt("ip", "netns", "delete", path.name)


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


_PROGRAM = str(Path(__file__).with_name("packet_relay.py"))
_DEVICE = Path("/dev/net/tun")
_MTU = 9000
"""Large packets keep their number, and with it the switch's work, small."""
_START_S = 60.0


def can_switch() -> bool:
    """Whether this process may make interfaces of its own."""
    return os.access(_DEVICE, os.R_OK | os.W_OK)


@contextlib.contextmanager
def running_switch(owner: Owner, rates: Sequence[float | None], delay_s: float) -> Iterator[subprocess.Popen[str]]:
    """Make a namespace for each host, join all by a switch, and end it when the launch is over.

    Args:
        owner: whose they are.
        rates: bits per second of each host's link; None if nothing limits it.
        delay_s: from one host to another.

    Raises LaunchError when the switch does not start.
    """
    count = len(rates)
    batch("ip", [f"netns add {namespace(owner, index)}" for index in range(count)])
    links = [
        {"namespace": str(NAMESPACES / namespace(owner, index)), "address": address(index), "bits_per_s": rates[index]}
        for index in range(count)
    ]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as switch:
        try:
            _begin(switch, {"interface": INTERFACE, "delay_s": delay_s, "links": links})
            for index in range(count):
                lines = [
                    "link set lo up",
                    f"link set {INTERFACE} mtu {_MTU} addrgenmode none",
                    f"addr add {address(index)}/{BITS} dev {INTERFACE}",
                    f"link set {INTERFACE} up",
                ]
                batch("ip", lines, namespace(owner, index))
            yield switch
        finally:
            switch.kill()


def _begin(switch: subprocess.Popen[str], plan: dict[str, object]) -> None:
    assert switch.stdin is not None  # noqa: S101 - it was asked for; so were the others
    assert switch.stdout is not None  # noqa: S101
    assert switch.stderr is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        switch.stdin.write(json.dumps(plan) + "\n")
        switch.stdin.flush()
    ready, _, _ = select.select([switch.stdout], [], [], _START_S)
    if not ready or not switch.stdout.readline():
        switch.kill()
        message = f"the switch that delays packets did not start: {' '.join(switch.stderr.read().split())[-300:]}"
        raise LaunchError(message)
