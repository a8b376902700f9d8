"""The rendezvous of a launch's workers outside their framework: barriers, broadcasts and clock comparison.

A star of plain sockets around worker 0. Its address goes through the run folder, which all workers share. Nothing
here runs in a timing run; in an ablation run it works between steps, never in one.
"""

import json
import os
import socket
import struct
import time
from typing import Any, Dict, List

from steptime.worker.handshake import accept_peers, announce_address, connect_peer, open_listener, read_address
from steptime.worker.process_context import ProcessContext

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
        return _receive(self._others[0])

    def clock_offset(self) -> Dict[str, float]:
        """Compare this worker's clock with worker 0's.

        Returns ``{"at_s", "offset_s", "rtt_s"}``: when (this worker's clock), worker 0's clock minus this worker's,
        and the round trip of the quickest exchange, half of which bounds the error (Cristian's method).
        """
        if self._rank == 0:
            for other in self._others:
                for _ in range(_CLOCK_EXCHANGES):
                    _receive(other)
                    _send(other, time.monotonic())
            return {"at_s": time.monotonic(), "offset_s": 0.0, "rtt_s": 0.0}
        best: Dict[str, float] = {}
        for _ in range(_CLOCK_EXCHANGES):
            sent = time.monotonic()
            _send(self._others[0], 0)
            there = _receive(self._others[0])
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


def _receive(connection: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_receive_bytes(connection, _LENGTH.size))
    return json.loads(_receive_bytes(connection, length).decode())


def _receive_bytes(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            message = "a worker exited; see its .jsonl"
            raise ConnectionError(message)
        data += piece
    return data
