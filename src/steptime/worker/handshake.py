"""The handshake of processes of one launch: sockets between those only that know the launch's secret.

The secret is random, one per launch, and lies in ``job.json``, which only the user can read. It never crosses a
socket: the accepting side sends a challenge, the connecting side answers it with its name and a challenge of its own,
under a keyed hash (HMAC-SHA256), and the accepting side proves itself in the same way. A caller that sends nothing, too
little or something wrong is dropped, and does not hold up others.
"""

import hashlib
import hmac
import os
import selectors
import socket
import struct
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

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


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            message = "the other side closed the connection"
            raise ConnectionError(message)
        data += piece
    return data
