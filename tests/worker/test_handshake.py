"""The handshake with real sockets: strangers that are silent, wrong, or many."""

import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from steptime.execution.run_folder import make_run_folder
from steptime.worker import handshake
from steptime.worker.handshake import accept_peers, announce_address, connect_peer, open_listener, read_address

SECRET = b"of this launch"
HOST = "127.0.0.1"


class Listening:
    """A listener that waits for ``worker-1`` and ``worker-2`` in a thread."""

    def __init__(self, limit_s: float = 20.0) -> None:
        listener = open_listener(HOST)
        self.address = listener.getsockname()[:2]
        self.found: dict[str, socket.socket] = {}
        self.failure: RuntimeError | None = None
        self._thread = threading.Thread(target=self._accept, args=(listener, limit_s))
        self._thread.start()

    def _accept(self, listener: socket.socket, limit_s: float) -> None:
        try:
            self.found = accept_peers(listener, SECRET, ["worker-1", "worker-2"], limit_s)
        except RuntimeError as error:
            self.failure = error

    def call(self, name: str, secret: bytes = SECRET, limit_s: float = 10.0) -> socket.socket:
        return connect_peer(lambda: self.address, secret, name, limit_s)

    def result(self) -> dict[str, socket.socket]:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.found


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def stranger(opened: ExitStack, address: tuple[str, int], say: bytes = b"") -> socket.socket:
    connection = opened.enter_context(socket.create_connection(address))
    connection.sendall(say)
    return connection


def both_come(listening: Listening, opened: ExitStack) -> bool:
    """Whether the two workers find the listener, each at its own end of a connection."""
    ends = {name: opened.enter_context(listening.call(name)) for name in ("worker-2", "worker-1")}
    found = listening.result()
    for name, connection in found.items():
        opened.enter_context(connection)
        ends[name].sendall(name.encode())
        assert connection.recv(8) == name.encode()
    return sorted(found) == ["worker-1", "worker-2"]


def test_processes_with_the_secret_find_each_other(opened):
    assert both_come(Listening(), opened)


def test_silent_strangers_hold_up_nobody(opened, monkeypatch):
    monkeypatch.setattr(handshake, "_ANSWER_S", 60.0)
    listening = Listening(limit_s=60.0)
    for _ in range(20):
        stranger(opened, listening.address)
    started = time.monotonic()
    assert both_come(listening, opened)
    assert time.monotonic() - started < 30.0


def test_more_strangers_than_are_heard_at_once_hold_up_nobody(opened, monkeypatch):
    monkeypatch.setattr(handshake, "_MOST_CALLERS", 4)
    listening = Listening()
    for _ in range(60):
        stranger(opened, listening.address)
    assert both_come(listening, opened)


@pytest.mark.parametrize(
    "said", [b"x", bytes(80), b"GET / HTTP/1.0\r\n\r\n", struct.pack("!I", 1) + b"1", b"\xff" * 100_000], ids=len
)
def test_a_stranger_that_says_something_wrong_is_dropped(opened, said):
    listening = Listening()
    stranger(opened, listening.address, said)
    assert both_come(listening, opened)


def test_a_silent_stranger_is_dropped_after_a_while(opened, monkeypatch):
    monkeypatch.setattr(handshake, "_ANSWER_S", 0.2)
    listening = Listening()
    connection = stranger(opened, listening.address)
    connection.settimeout(5.0)
    while connection.recv(64):  # the challenge, and then the end
        pass
    assert both_come(listening, opened)


def test_a_process_of_another_launch_is_not_let_in(opened):
    listening = Listening()
    with pytest.raises(RuntimeError, match="worker-1 could not connect"):
        listening.call("worker-1", secret=b"of another launch", limit_s=0.3)
    assert both_come(listening, opened)


def test_a_name_that_is_not_expected_is_not_let_in(opened):
    listening = Listening()
    opened.enter_context(listening.call("worker-9"))
    assert both_come(listening, opened)


def test_who_calls_is_not_fooled_by_a_stranger_that_listens(opened):
    listener = opened.enter_context(open_listener(HOST))

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(bytes(16))
                connection.recv(80)
                connection.sendall(bytes(32))

    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(RuntimeError, match="does not belong to this launch"):
        connect_peer(lambda: listener.getsockname()[:2], SECRET, "worker-1", 0.3)


def test_who_did_not_come_is_named(opened):
    listening = Listening(limit_s=0.5)
    opened.enter_context(listening.call("worker-2"))
    listening.result()
    assert str(listening.failure) == "worker-1 did not connect within 0.5 s"


def test_an_address_is_read_from_where_it_was_announced(tmp_path, opened):
    path = str(tmp_path / "rendezvous.json")
    assert read_address(path) is None
    listener = opened.enter_context(open_listener(HOST))
    announce_address(listener, path)
    assert read_address(path) == listener.getsockname()[:2]


def test_every_launch_has_a_secret_of_its_own_that_only_the_user_can_read(tmp_path):
    jobs = [make_run_folder(tmp_path / name, Path(__file__).parent, {}) for name in ("one", "two")]
    assert len({path.read_text() for path in jobs}) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in jobs} == {0o600}
