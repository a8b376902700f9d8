"""The handshake of processes of one launch: sockets between those only that know the launch's secret.

The secret is random, one per launch, and lies in ``job.json``, which only the user can read. It never crosses a
socket: the accepting side sends a challenge, the connecting side answers it with its name and a challenge of its own,
under a keyed hash (HMAC-SHA256), and the accepting side proves itself in the same way. A caller that sends nothing, too
little or something wrong is dropped, and does not hold up others.

The rendezvous of a launch's workers outside their framework: barriers, broadcasts and clock comparison.

A star of plain sockets around worker 0. Its address goes through the run folder, which all workers share. Nothing
here runs in a timing run; in an ablation run it works between steps, never in one.
"""

import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from steptime.worker.process_context import ProcessContext
from steptime.worker.shared_file import is_there, read_json, write_json

_CHALLENGE_BYTES = 16
_HELLO = struct.Struct("!16s32s32s")
"""The caller's challenge, its name and its proof."""
_PROOF_BYTES = 32
_ANSWER_S = 5.0
"""How long a caller may take to prove itself; one that was held up for longer calls again."""
_MOST_CALLERS = 256
"""Of those that have not proven themselves yet: strangers must not take all descriptors of the process."""
_RETRY_S = 0.01
_BACKLOG = 128


def open_listener(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens on ``host``, by default on any free port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def announce_address(listener: socket.socket, path: str) -> None:
    """Write the address of ``listener`` to the file ``path``, whole or not at all."""
    write_json(path, listener.getsockname()[:2])


def read_address(path: str) -> Optional[Tuple[str, int]]:
    """Return the ``(host, port)`` that was announced in the file ``path``; None while none is."""
    if not is_there(path):
        return None
    host, port = read_json(path)
    return host, port


def accept_peers(
    listener: socket.socket, secret: bytes, names: Sequence[str], limit_s: float
) -> Dict[str, socket.socket]:
    """Wait for the processes ``names`` and return their connections by name; the listener is closed in any case.

    Raises RuntimeError with the peers that have not connected within ``limit_s`` seconds.
    """
    deadline = time.monotonic() + limit_s
    reception = _Reception(listener, secret, names)
    try:
        while len(reception.found) < len(names):
            if time.monotonic() > deadline:
                absent = ", ".join(name for name in names if name not in reception.found)
                raise RuntimeError("%s did not connect within %g s" % (absent, limit_s))
            reception.await_news(deadline)
            reception.attend()
    except BaseException:
        for connection in reception.found.values():
            connection.close()
        raise
    finally:
        reception.close()
    return reception.found


def connect_peer(
    find_address: Callable[[], Optional[Tuple[str, int]]], secret: bytes, name: str, limit_s: float
) -> socket.socket:
    """Return a connection to the process that accepts peers, which has proven that it belongs to this launch.

    Args:
        find_address: called before each attempt; returns ``(host, port)``, or None while no process listens.
        secret: of the launch, bytes.
        name: of this process.
        limit_s: seconds for all attempts.

    Raises RuntimeError with the last failure.
    """
    deadline = time.monotonic() + limit_s
    failure = "no process listens yet"
    while True:
        try:
            address = find_address()
            if address:
                return _call(address, secret, name, deadline)
        except (OSError, ValueError) as error:
            failure = "%s: %s" % (type(error).__name__, error)
        if time.monotonic() > deadline:
            raise RuntimeError("%s could not connect within %g s (%s)" % (name, limit_s, failure))
        time.sleep(_RETRY_S)


class _Caller(object):
    """A connection whose other side has not proven itself yet."""

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + _ANSWER_S
        self.name: Optional[str] = None
        """Of the process, once it has proven itself."""
        self._secret = secret
        self._said = b""
        self._has_left = False
        self._challenge = os.urandom(_CHALLENGE_BYTES)
        connection.setblocking(False)
        connection.sendall(self._challenge)

    def is_done(self) -> bool:
        """Whether nothing more is expected of this caller: it has proven itself, failed to, gone, or is late."""
        return self._has_left or len(self._said) == _HELLO.size or time.monotonic() > self.deadline

    def listen(self) -> None:
        """Read what has come, and answer a proof by another."""
        try:
            piece = self.connection.recv(_HELLO.size - len(self._said))
            self._said += piece
            self._has_left = not piece
            if len(self._said) == _HELLO.size:
                self._answer()
        except BlockingIOError:
            return
        except OSError:
            self._has_left = True

    def _answer(self) -> None:
        challenge, name, proof = _HELLO.unpack(self._said)
        if hmac.compare_digest(proof, _proof(self._secret, b"caller", self._challenge, challenge, name)):
            self.connection.sendall(_proof(self._secret, b"listener", self._challenge, challenge, name))
            self.name = name.rstrip(b"\0").decode("ascii")


class _Reception(object):
    """A listener, the callers that have not proven themselves yet, and the connections ``found`` of those that have."""

    def __init__(self, listener: socket.socket, secret: bytes, names: Sequence[str]) -> None:
        self.found: Dict[str, socket.socket] = {}
        self._listener, self._secret, self._names = listener, secret, names
        self._callers: List[_Caller] = []
        listener.setblocking(False)

    def await_news(self, deadline: float) -> None:
        """Return when somebody connects or sends something, or a caller is late, or at the deadline."""
        with selectors.DefaultSelector() as selector:  # not select(), which knows no descriptors above 1023
            for each in [self._listener] + [caller.connection for caller in self._callers]:
                selector.register(each, selectors.EVENT_READ)
            until = min([deadline] + [caller.deadline for caller in self._callers])
            selector.select(max(0.0, until - time.monotonic()))

    def attend(self) -> None:
        """Accept who calls, hear what the callers say, and drop those of whom nothing more is expected."""
        self._accept()
        waiting = []
        for caller in self._callers:
            caller.listen()
            if caller.name is not None and caller.name in self._names:
                if caller.name in self.found:  # it lost its connection and called again
                    self.found[caller.name].close()
                self.found[caller.name] = _ready(caller.connection)
            elif caller.is_done():
                caller.connection.close()
            else:
                waiting.append(caller)
        for caller in waiting[:-_MOST_CALLERS]:
            caller.connection.close()
        self._callers = waiting[-_MOST_CALLERS:]

    def close(self) -> None:
        """Stop listening, and drop all callers."""
        for caller in self._callers:
            caller.connection.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # no caller, or one that has gone
            return
        try:
            self._callers.append(_Caller(connection, self._secret))
        except OSError:
            connection.close()


def _call(address: Tuple[str, int], secret: bytes, name: str, deadline: float) -> socket.socket:
    connection = socket.create_connection(address, timeout=_ANSWER_S)
    try:
        theirs = _receive(connection, _CHALLENGE_BYTES)
        own, padded = os.urandom(_CHALLENGE_BYTES), name.encode("ascii").ljust(32, b"\0")
        connection.sendall(_HELLO.pack(own, padded, _proof(secret, b"caller", theirs, own, padded)))
        connection.settimeout(max(_ANSWER_S, deadline - time.monotonic()))  # who was heard must not call again
        if not hmac.compare_digest(
            _receive(connection, _PROOF_BYTES), _proof(secret, b"listener", theirs, own, padded)
        ):
            raise OSError("who listens at %s:%d does not belong to this launch" % address)
    except BaseException:
        connection.close()
        raise
    return _ready(connection)


def _proof(secret: bytes, side: bytes, *parts: bytes) -> bytes:
    return hmac.new(secret, b"".join((side.ljust(8, b"\0"),) + parts), hashlib.sha256).digest()


def _ready(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(None)
    return connection


def _receive(connection: socket.socket, count: int, closed: str = "the other side closed the connection") -> bytes:
    """Return so many bytes; raises ConnectionError with the message ``closed`` if the connection ends before."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError(closed)
        data += piece
    return data


_LENGTH = struct.Struct("!I")
_LIMIT_S = 300.0
_CLOCK_EXCHANGES = 32
_PINGS = 60


class Rendezvous(object):
    """This worker's connection to the others; all methods are called by all workers in the same order.

    A context manager. Raises RuntimeError when the workers do not find each other, and OSError when a worker dies.
    """

    def __init__(self, context: ProcessContext) -> None:
        self._rank = context.rank
        self._workers = context.workers
        self._others: List[socket.socket] = []
        if self._workers == 1:
            return
        path = os.path.join(context.folder, "rendezvous.json")
        if self._rank == 0:
            self._others = _accept_workers(context, path)
        else:
            self._others = [connect_peer(lambda: read_address(path), context.secret, context.name, _LIMIT_S)]
        for other in self._others:
            other.settimeout(_LIMIT_S)

    def __enter__(self) -> "Rendezvous":  # noqa: PYI034 - Self is newer than Python 3.6
        return self

    def __exit__(self, *_: object) -> None:
        for other in self._others:
            other.close()

    def barrier(self) -> None:
        """Return in all workers when the last has called it, as nearly at once as messages allow."""
        if self._rank == 0:
            for other in self._others:
                _receive_bytes(other, 1)
            for other in self._others:
                other.sendall(b".")
        elif self._others:
            self._others[0].sendall(b".")
            _receive_bytes(self._others[0], 1)

    def from_first(self, value: Any) -> Any:
        """Return worker 0's ``value``, which must be JSON-ready, in all workers."""
        if self._rank == 0:
            for other in self._others:
                _send(other, value)
            return value
        return _receive_message(self._others[0])

    def clock_offset(self) -> Dict[str, float]:
        """Compare this worker's clock with worker 0's.

        Returns ``{"at_s", "offset_s", "rtt_s"}``: when (this worker's clock), worker 0's clock minus this worker's,
        and the round trip of the quickest exchange, half of which bounds the error (Cristian's method).
        """
        if self._rank == 0:
            for other in self._others:
                for _ in range(_CLOCK_EXCHANGES):
                    _receive_message(other)
                    _send(other, time.monotonic())
            return {"at_s": time.monotonic(), "offset_s": 0.0, "rtt_s": 0.0}
        best: Dict[str, float] = {}
        for _ in range(_CLOCK_EXCHANGES):
            sent = time.monotonic()
            _send(self._others[0], 0)
            there = _receive_message(self._others[0])
            back = time.monotonic()
            if not best or back - sent < best["rtt_s"]:
                middle = (sent + back) / 2
                best = {"at_s": middle, "offset_s": there - middle, "rtt_s": back - sent}
        return best

    def latencies(self) -> List[float]:
        """Return the one-way seconds of one byte (half a round trip, median) from worker 0 to each other worker.

        Others than worker 0 return an empty list.
        """
        if self._rank:
            for _ in range(_PINGS):
                self._others[0].sendall(_receive_bytes(self._others[0], 1))
        found = [_half_round_trip(other) for other in self._others] if self._rank == 0 else []
        self.barrier()
        return found


def _half_round_trip(connection: socket.socket) -> float:
    times = []
    for _ in range(_PINGS):
        started = time.monotonic()
        connection.sendall(b".")
        _receive_bytes(connection, 1)
        times.append(time.monotonic() - started)
    return sorted(times)[_PINGS // 2] / 2


def _accept_workers(context: ProcessContext, path: str) -> List[socket.socket]:
    """Listen as worker 0, and return the connections in the order of the ranks."""
    listener = open_listener(context.root_host)
    announce_address(listener, path)
    names = ["worker-%d" % rank for rank in range(1, context.workers)]
    found = accept_peers(listener, context.secret, names, _LIMIT_S)
    return [found[name] for name in names]


def _send(connection: socket.socket, value: Any) -> None:
    text = json.dumps(value).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)


def _receive_message(connection: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_receive_bytes(connection, _LENGTH.size))
    return json.loads(_receive_bytes(connection, length).decode())


def _receive_bytes(connection: socket.socket, count: int) -> bytes:
    return _receive(connection, count, closed="a worker exited; see its .jsonl")
