"""The rendezvous of a launch's workers outside their framework: barriers, broadcasts and clock comparison.

A star of plain sockets around worker 0. Its address goes through the run folder, which all workers share. Nothing
here runs in a timing run; in an ablation run it works between steps, never in one.
"""

import json
import os
import socket
import struct
import time

_LENGTH = struct.Struct("!I")
_POLL_S = 0.005
_LIMIT_S = 300.0
_PINGS = 32


class Rendezvous(object):
    """This worker's connection to the others; all methods are called by all workers in the same order.

    A context manager. Raises RuntimeError when worker 0 does not open the rendezvous, and OSError when a worker dies.
    """

    def __init__(self, context):
        self._rank = context.rank
        self._workers = context.workers
        self._others = []
        if self._workers == 1:
            return
        path = os.path.join(context.folder, "rendezvous.json")
        if self._rank == 0:
            self._others = _accept_workers(context, path)
        else:
            self._others = [_connect(self._rank, path)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for other in self._others:
            other.close()

    def barrier(self):
        """Return in all workers when the last has called it, as nearly at once as messages allow."""
        if self._rank == 0:
            for other in self._others:
                _receive_bytes(other, 1)
            for other in self._others:
                other.sendall(b".")
        elif self._others:
            self._others[0].sendall(b".")
            _receive_bytes(self._others[0], 1)

    def from_first(self, value):
        """Return worker 0's ``value``, which must be JSON-ready, in all workers."""
        if self._rank == 0:
            for other in self._others:
                _send(other, value)
            return value
        return _receive(self._others[0])

    def clock_offset(self):
        """Compare this worker's clock with worker 0's.

        Returns ``{"at_s", "offset_s", "rtt_s"}``: when (this worker's clock), worker 0's clock minus this worker's,
        and the round trip of the quickest exchange, half of which bounds the error (Cristian's method).
        """
        if self._rank == 0:
            for other in self._others:
                for _ in range(_PINGS):
                    _receive(other)
                    _send(other, time.monotonic())
            return {"at_s": time.monotonic(), "offset_s": 0.0, "rtt_s": 0.0}
        best = None
        for _ in range(_PINGS):
            sent = time.monotonic()
            _send(self._others[0], 0)
            there = _receive(self._others[0])
            back = time.monotonic()
            if best is None or back - sent < best["rtt_s"]:
                middle = (sent + back) / 2
                best = {"at_s": middle, "offset_s": there - middle, "rtt_s": back - sent}
        return best


def _accept_workers(context, path):
    """Listen as worker 0, and return the connections in the order of the ranks."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((context.root_host, 0))
        listener.listen(context.workers)
        listener.settimeout(_LIMIT_S)
        partial = path + ".partial"
        with open(partial, "w") as file:
            json.dump(listener.getsockname()[:2], file)
        os.rename(partial, path)
        found = {}
        while len(found) < context.workers - 1:
            connection = _without_delay(listener.accept()[0])
            found[_receive(connection)] = connection
    finally:
        listener.close()
    return [found[rank] for rank in sorted(found)]


def _connect(rank, path):
    deadline = time.monotonic() + _LIMIT_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise RuntimeError("worker 0 did not open the rendezvous in %s within %d s" % (path, _LIMIT_S))
        time.sleep(_POLL_S)
    with open(path) as file:
        address = json.load(file)
    connection = _without_delay(socket.create_connection(tuple(address), timeout=_LIMIT_S))
    _send(connection, rank)
    return connection


def _without_delay(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(_LIMIT_S)
    return connection


def _send(connection, value):
    text = json.dumps(value).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)


def _receive(connection):
    (length,) = _LENGTH.unpack(_receive_bytes(connection, _LENGTH.size))
    return json.loads(_receive_bytes(connection, length).decode())


def _receive_bytes(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            message = "a worker left the rendezvous; its own records say why"
            raise ConnectionError(message)
        data += piece
    return data
