"""Verification of the hosts' network: every setting, read back from the kernel and compared.

The requirements of the launcher ``emulated`` on this machine: Linux, iproute2 and the right to make namespaces.

The paths between hosts: latency and bandwidth, measured with plain sockets before the launch.
"""

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from steptime.catalog.cluster_findings import PathFindings
from steptime.errors import LaunchError
from steptime.launchers.emulation.control_groups import Owner, new_owner
from steptime.launchers.emulation.network import (
    INTERFACE,
    LATENCY_MS,
    NAMESPACES,
    Shape,
    address,
    ask,
    attempt,
    namespace,
    port,
    switch,
    within_host,
)
from steptime.launchers.emulation.ping import BEAT_S
from steptime.launchers.emulation.rootless import user_namespaces_work

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


def missing_program() -> str | None:
    """Say in a sentence what this machine lacks to emulate a cluster, as far as that is known without starting any."""
    if not sys.platform.startswith("linux"):
        return "the launcher 'emulated' needs Linux, whose namespaces it makes hosts of"
    absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if absent:
        return (
            f"the launcher 'emulated' needs the command {absent[0]!r}, which is not on PATH; "
            "install iproute2 (Debian: apt install iproute2)"
        )
    return None


def missing_requirement() -> str | None:
    """Say in a sentence why no cluster can be emulated here; None if one can."""
    if reason := missing_program():
        return reason
    if not (is_privileged() or user_namespaces_work()):
        return (
            "the launcher 'emulated' makes network namespaces, which needs root or, where the kernel allows them, "
            "user namespaces; run steptime as root, in a container if you like"
        )
    return None


@cache
def is_privileged() -> bool:
    """Whether this process may make network namespaces itself."""
    name = new_owner().name("probe")
    return attempt("ip", "netns", "add", name) and attempt("ip", "netns", "delete", name)


@cache
def kernel_delays() -> bool:
    """Whether the kernel can delay packets by ``netem``."""
    name = new_owner().name("probe")
    if not attempt("ip", "netns", "add", name):
        return False
    try:
        return attempt("tc", "-n", name, "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms")
    finally:
        attempt("ip", "netns", "delete", name)


_PROGRAM = str(Path(__file__).with_name("ping.py"))
_LIMIT_S = 120.0
_LONG_S = 0.08
"""How long a long message takes, about: many bursts, and still quick."""
_LEAST_BURSTS = 40
_LEAST_IN_FLIGHT = 20
"""How many times what is on its way at once: a connection needs a few round trips until it fills a late link."""
_MOST_BYTES = 8 << 20

Command = Callable[[int, Sequence[str]], list[str]]
"""The argument list that runs a Python program with arguments on a host."""


def message_bytes(bandwidth_bits_per_s: float | None, burst_bytes: int, delay_s: float = 0.0) -> int:
    """Return the size of the messages from which the bandwidth is taken; the burst at their start must not matter."""
    if bandwidth_bits_per_s is None:
        return _MOST_BYTES
    in_flight = 2 * delay_s * bandwidth_bits_per_s / 8
    least = max(_LEAST_BURSTS * burst_bytes, round(_LEAST_IN_FLIGHT * in_flight))
    return min(_MOST_BYTES, max(least, round(bandwidth_bits_per_s / 8 * _LONG_S)))


def measure_paths(
    addresses: Sequence[str], size: int, command: Command, variables: Mapping[str, str] | None = None
) -> list[PathFindings]:
    """Return what a message from the first host to each other one takes.

    Args:
        addresses: of all hosts.
        size: bytes of a long message.
        command: how a program is run on a host.
        variables: the environment of these commands; by default that of this process.

    Raises LaunchError when the hosts cannot reach each other.
    """
    if len(addresses) == 1:
        return []
    secret = secrets.token_hex(16)
    started: list[subprocess.Popen[str]] = []
    told: list[subprocess.Popen[str]] = []
    ended = threading.Event()
    threading.Thread(target=_beat, args=[told, ended], daemon=True).start()

    def run(host: int, arguments: list[str], *lines: str) -> subprocess.Popen[str]:
        started.append(_start(command(host, [_PROGRAM, *arguments]), variables))
        _tell(started[-1], *lines)
        told.append(started[-1])
        return started[-1]

    try:
        servers = [run(host, ["serve", addresses[host]], secret) for host in range(1, len(addresses))]
        targets = [(address, _port_of(server)) for address, server in zip(addresses[1:], servers, strict=True)]
        asker = run(0, ["ask", str(size)], secret, json.dumps(targets))
        said, complaint = _answer_of(asker)
    except OSError as error:
        message = f"the links between hosts could not be measured: {error}"
        raise LaunchError(message) from error
    finally:
        ended.set()
        for process in started:
            process.kill()
            process.communicate()
    if asker.returncode:
        message = f"the hosts cannot reach each other: {' '.join(complaint.split())[-300:]}"
        raise LaunchError(message)
    return [_path(host, times, size) for host, times in enumerate(json.loads(said), start=1)]


def _start(argv: list[str], variables: Mapping[str, str] | None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _tell(program: subprocess.Popen[str], *lines: str) -> None:
    """Tell a program the secret and more; it stays where another user cannot read it, which arguments do not."""
    assert program.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(BrokenPipeError):  # it has ended, which the wait for its output shows
        program.stdin.writelines(f"{line}\n" for line in lines)
        program.stdin.flush()


def _beat(told: list[subprocess.Popen[str]], ended: threading.Event) -> None:
    """Say to programs that this process lives: over a cut link they would not notice its end."""
    while not ended.wait(BEAT_S):
        for program in list(told):
            with contextlib.suppress(ValueError):  # closed meanwhile
                _tell(program, "")


def _answer_of(asker: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a program prints until its end, on standard output and error; it is killed at the time limit."""
    assert asker.stdout is not None  # noqa: S101 - it was asked for
    assert asker.stderr is not None  # noqa: S101
    limit = threading.Timer(_LIMIT_S, asker.kill)
    limit.start()
    try:
        said, complaint = asker.stdout.read(), asker.stderr.read()
        asker.wait()
    finally:
        limit.cancel()
    return said, complaint


def _port_of(server: subprocess.Popen[str]) -> int:
    """Return the port on which a program listens, as it prints it; what a login shell prints before is passed over."""
    assert server.stdout is not None  # noqa: S101 - it was asked for
    limit = threading.Timer(_LIMIT_S, server.kill)
    limit.start()
    try:
        for line in server.stdout:
            if line.strip().isdecimal():
                return int(line)
    finally:
        limit.cancel()
    server.kill()
    _, complaint = server.communicate()
    message = f"no program could be run on a host: {' '.join(complaint.split())[-300:]}"
    raise LaunchError(message)


def _path(target: int, times: dict[str, list[float]], size: int) -> PathFindings:
    short, long = median(times["short_s"]), median(times["long_s"])
    return PathFindings(
        source=0,
        target=target,
        alpha_s=short / 2,
        bandwidth_bits_per_s=8 * size / max(long - short, 1e-9),
        message_bytes=size,
    )
