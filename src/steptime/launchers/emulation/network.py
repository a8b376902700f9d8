"""The network of emulated hosts: a network namespace for each, joined by a switch, with one link per host.

The commands ``ip`` and ``tc`` make it, since they know more of the kernel than Python does.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from steptime.errors import LaunchError
from steptime.launchers.emulation.owner import Owner
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
