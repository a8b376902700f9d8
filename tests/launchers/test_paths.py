"""The measurement of paths between hosts, with both of its ends on this one: whom it serves, and on which ports."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from steptime.errors import LaunchError
from steptime.launchers.emulation import ping
from steptime.launchers.emulation.verification import measure_paths

SIZE = 1 << 16
PLACE = "127.0.77.2"
"""An address of loopback that nothing else listens at."""


def command(_: int, program: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", *program]


def ports_at(address: str) -> list[int]:
    """Return the ports on which somebody listens at an address."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].split(":")[1], 16) for line in lines if line[1].startswith(wanted) and line[3] == "0A"]


@pytest.fixture
def callers() -> Iterator[ExitStack]:
    """Connections that end with the test."""
    with ExitStack() as stack:
        yield stack


def test_strangers_hold_up_no_measurement_and_are_served_nothing(callers):
    """One says nothing, one something wrong; both come before the asker."""
    strangers = []

    def command_after_strangers(host: int, program: Sequence[str]) -> list[str]:
        if host == 0:
            for said in (b"", bytes(200)):
                stranger = callers.enter_context(socket.create_connection((PLACE, *ports_at(PLACE)), timeout=20))
                stranger.sendall(said)
                strangers.append(stranger)
        return command(host, program)

    (path,) = measure_paths(["127.0.0.1", PLACE], SIZE, command_after_strangers)
    assert path.alpha_s > 0
    challenge = 16
    for stranger in strangers:
        answer = b""
        while piece := _received(stranger):
            answer += piece
        assert len(answer) <= challenge


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 10)
    except ConnectionError:
        return b""


def test_two_studies_that_share_a_node_both_measure():
    found: list[object] = []
    measure = lambda: found.append(measure_paths(["127.0.0.1", PLACE], SIZE, command))  # noqa: E731
    threads = [threading.Thread(target=measure) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)


def test_no_argument_of_a_program_holds_the_secret():
    started: list[Sequence[str]] = []

    def noted(host: int, program: Sequence[str]) -> list[str]:
        started.append(program[1:])
        return command(host, program)

    measure_paths(["127.0.0.1", PLACE], SIZE, noted)
    assert started == [["serve", PLACE], ["ask", str(SIZE)]]


def test_what_a_login_shell_says_before_the_port_is_passed_over():
    def greeted(host: int, program: Sequence[str]) -> list[str]:
        return (
            ["/bin/sh", "-c", 'echo Welcome; exec "$@"', "sh", *command(host, program)]
            if host
            else command(host, program)
        )

    assert measure_paths(["127.0.0.1", PLACE], SIZE, greeted)


def test_a_host_on_which_no_program_runs_is_told_with_what_was_said():
    with pytest.raises(LaunchError, match="no program could be run on a host: no Python here"):
        measure_paths(["127.0.0.1", PLACE], SIZE, lambda _, __: ["/bin/sh", "-c", "echo no Python here >&2"])


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A serving program that has heard the secret, and on which nobody calls."""
    pipe = subprocess.PIPE
    started = subprocess.Popen(command(1, [ping.__file__, "serve", PLACE]), stdin=pipe, stdout=pipe)
    started.stdin.write(b"00\n")
    started.stdin.flush()
    assert int(started.stdout.readline())
    yield started
    started.kill()
    started.wait()
    started.stdin.close()
    started.stdout.close()


def test_a_program_on_another_host_ends_when_the_line_from_the_launcher_is_closed(server):
    server.stdin.close()
    assert server.wait(5.0)


def test_a_program_on_another_host_ends_when_the_launcher_falls_silent(server):
    """Over a cut link nothing closes the line."""
    assert server.wait(15.0)


def test_a_program_waits_for_as_long_as_the_launcher_lives():
    def late(host: int, program: Sequence[str]) -> list[str]:
        if host == 0:
            time.sleep(11.0)  # longer than the silence after which a launcher is taken for dead
        return command(host, program)

    (path,) = measure_paths(["127.0.0.1", PLACE], SIZE, late)
    assert path.alpha_s > 0
