"""The paths between hosts: latency and bandwidth, measured with plain sockets before the launch."""

import contextlib
import json
import secrets
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from steptime.catalog.cluster import PathFindings
from steptime.errors import LaunchError
from steptime.launchers.emulation.ping import BEAT_S

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
