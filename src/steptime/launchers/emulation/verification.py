"""Verification of the hosts' network: every setting, read back from the kernel and compared."""

from pathlib import Path
from typing import Any

from steptime.errors import LaunchError
from steptime.launchers.emulation.network import (
    INTERFACE,
    NAMESPACES,
    address,
    ask,
    namespace,
    port,
    switch,
    within_host,
)
from steptime.launchers.emulation.owner import Owner
from steptime.launchers.emulation.traffic_control import LATENCY_MS, Shape

CONGESTION_CONTROL = "reno"
"""How connections find out how fast a link is: the plainest way, and the one that every kernel has."""
_CONGESTION_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_CLOSE = 0.01
"""The largest relative difference that the kernel's rounding makes."""


def choose_congestion_control(owner: Owner, hosts: int) -> None:
    """Set how connections on every host find their speed; raises LaunchError when the kernel refuses."""
    for index in range(hosts):
        within_host(NAMESPACES / namespace(owner, index), lambda: _CONGESTION_FILE.write_text(CONGESTION_CONTROL))


def check_network(owner: Owner, shapes: list[Shape | None], delay_s: float) -> None:
    """Compare the kernel's settings with those that were set; raises LaunchError with every difference."""
    differences = []
    for index, shape in enumerate(shapes):
        host = namespace(owner, index)
        ends = [(host, INTERFACE), (switch(owner), port(index))]
        for space, device in ends:
            differences += [f"{device} of host {index}: {text}" for text in _differences(space, device, shape)]
        differences += _of_host(owner, index)
        differences += _of_delay(host, index, delay_s)
    _refuse(differences)


def check_hosts(owner: Owner, hosts: int) -> None:
    """Likewise where a program joins the hosts, so that the kernel knows nothing of the links between them."""
    differences = []
    for index in range(hosts):
        found = _differences(namespace(owner, index), INTERFACE, None)
        differences += [f"{INTERFACE} of host {index}: {text}" for text in found]
        differences += _of_host(owner, index)
    _refuse(differences)


def _refuse(differences: list[str]) -> None:
    if differences:
        message = "the kernel did not take the settings of the emulated cluster: " + "; ".join(differences)
        raise LaunchError(message)


def _differences(space: str, device: str, shape: Shape | None) -> list[str]:
    (link,) = ask("ip", "link", "show", "dev", device, namespace=space)
    found = []
    if "UP" not in link["flags"]:
        found.append("is not up")
    if shape is None:
        return found
    if link.get("gso_max_size") != shape.gso_max_bytes:
        found.append(f"gso_max_size is {link.get('gso_max_size')}, not {shape.gso_max_bytes}")
    queues = ask("tc", "qdisc", "show", "dev", device, namespace=space)
    options: dict[str, Any] = next((queue["options"] for queue in queues if queue["kind"] == "tbf"), {})
    wanted = {"rate": shape.rate_bits_per_s / 8, "burst": shape.burst_bytes, "lat": LATENCY_MS * 1e3}
    return found + [
        f"{name} is {options.get(name)}, not {value:g}"
        for name, value in wanted.items()
        if not _is_close(options.get(name), value)
    ]


def _of_host(owner: Owner, index: int) -> list[str]:
    space = namespace(owner, index)
    (link,) = ask("ip", "addr", "show", "dev", INTERFACE, namespace=space)
    addresses = [each["local"] for each in link["addr_info"]]
    found = [] if addresses == [address(index)] else [f"host {index} has the addresses {addresses}"]
    control = within_host(NAMESPACES / space, _CONGESTION_FILE.read_text).strip()
    if control != CONGESTION_CONTROL:
        found.append(f"the congestion control of host {index} is {control}, not {CONGESTION_CONTROL}")
    return found


def _of_delay(space: str, index: int, delay_s: float) -> list[str]:
    if not delay_s:
        return []
    queues = ask("tc", "qdisc", "show", "dev", INTERFACE, namespace=space)
    options: dict[str, Any] = next((queue["options"] for queue in queues if queue["kind"] == "netem"), {})
    delay = options.get("delay", {}).get("delay") if isinstance(options.get("delay"), dict) else options.get("delay")
    return [] if _is_close(delay, delay_s) else [f"the delay of host {index} is {delay}, not {delay_s:g} s"]


def _is_close(found: Any, wanted: float) -> bool:  # noqa: ANN401 - whatever the tool prints
    return isinstance(found, (int, float)) and abs(found - wanted) <= _CLOSE * wanted


def bytes_of(owner: Owner, index: int) -> tuple[int, int]:
    """Return how many bytes the interface of a host has received and sent so far."""
    (link,) = ask("ip", "link", "show", "dev", INTERFACE, namespace=namespace(owner, index))
    counts = link["stats64"]
    return counts["rx"]["bytes"], counts["tx"]["bytes"]


def queue_of(owner: Owner, index: int) -> tuple[float, int] | None:
    """Return bits per second and burst in bytes of a host's link as the kernel keeps them; None without a limit."""
    for queue in ask("tc", "qdisc", "show", "dev", INTERFACE, namespace=namespace(owner, index)):
        if queue["kind"] == "tbf":
            return queue["options"]["rate"] * 8.0, queue["options"]["burst"]
    return None
