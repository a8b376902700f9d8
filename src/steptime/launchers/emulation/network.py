"""Network namespaces as hosts, and a switch with a link to each of them."""

from collections.abc import Sequence
from pathlib import Path

from steptime.launchers.emulation.owner import Owner
from steptime.launchers.emulation.tools import attempt, batch

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
    """What ``/etc/hosts`` says on every host."""
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
            # No addresses that nobody asked for: some libraries take the first one of an interface.
            f"link set {INTERFACE} {_size(gso_max_bytes[index])}addrgenmode none",
            f"addr add {address(index)}/{BITS} dev {INTERFACE}",
            f"link set {INTERFACE} up",
        ]
        batch("ip", lines, namespace(owner, index))


def _size(gso_max_bytes: int | None) -> str:
    return f"gso_max_size {gso_max_bytes} " if gso_max_bytes else ""


def remove_network(owner: Owner) -> None:
    """Remove all namespaces of ``owner``, and with them their interfaces; what is not there is no failure."""
    for path in sorted(NAMESPACES.glob(f"{owner.mark}-*")):
        attempt("ip", "netns", "delete", path.name)
