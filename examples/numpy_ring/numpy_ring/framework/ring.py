"""All-reduce around a ring of sockets: every worker sends to the next one and receives from the one before.

A vector is cut into one part per worker. In p - 1 turns each part collects its sum on its way round (reduce-scatter),
in p - 1 more the sums go round (all-gather): a worker sends 2 (p - 1) / p of the vector, whatever the number of
workers p (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms for clusters of workstations).
"""

import select
import socket
import time

import numpy

_PATIENCE_S = 120.0
_RETRY_S = 0.02


class Ring(object):
    """One worker's place between its two neighbours; with one worker there is nothing to send.

    Raises RuntimeError when a neighbour does not come within two minutes, ConnectionError when one leaves.
    """

    def __init__(self, context):
        self._rank, self._workers = context.rank, context.workers
        if self._workers == 1:
            return
        listener = _listen(context.worker_addresses[context.rank])
        try:
            self._next = _connect(context.worker_addresses[(context.rank + 1) % context.workers])
            self._before, _ = listener.accept()
        except socket.timeout as error:
            raise RuntimeError("the worker before worker %d did not come" % context.rank) from error
        finally:
            listener.close()
        for neighbour in (self._next, self._before):
            neighbour.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            neighbour.setblocking(False)

    def average(self, vector):
        """Replace ``vector`` (float32, one axis) by its average over all workers; all call it with the same length."""
        if self._workers == 1:
            return
        parts = numpy.array_split(vector, self._workers)
        received = numpy.empty_like(parts[0])  # the longest part
        for turn in range(self._workers - 1):
            own, other = parts[(self._rank - turn) % self._workers], parts[(self._rank - turn - 1) % self._workers]
            self._send_and_receive(own, received[: other.size])
            other += received[: other.size]
        parts[(self._rank + 1) % self._workers][:] /= self._workers
        for turn in range(self._workers - 1):
            own, other = parts[(self._rank + 1 - turn) % self._workers], parts[(self._rank - turn) % self._workers]
            self._send_and_receive(own, other)

    def _send_and_receive(self, outgoing, incoming):
        """Do both at once: a worker that only sent would wait for one that only sends."""
        out, into = memoryview(outgoing).cast("B"), memoryview(incoming).cast("B")
        while out or into:
            readable, writable, _ = select.select(
                [self._before] if into else [], [self._next] if out else [], [], _PATIENCE_S
            )
            if not readable and not writable:
                raise ConnectionError("the neighbours of worker %d are silent" % self._rank)
            if writable:
                out = out[self._next.send(out) :]
            if readable:
                count = self._before.recv_into(into)
                if count == 0:
                    raise ConnectionError("the worker before worker %d left in the middle of a step" % self._rank)
                into = into[count:]

    def close(self):
        """Close both connections."""
        if self._workers > 1:
            self._next.close()
            self._before.close()


def _listen(address):
    host, port = address.rsplit(":", 1)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen(1)
    listener.settimeout(_PATIENCE_S)
    return listener


def _connect(address):
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=_PATIENCE_S)
        except OSError as error:  # noqa: PERF203 - the next worker may not listen yet
            if time.monotonic() > deadline:
                raise RuntimeError("the next worker does not answer at %s: %s" % (address, error)) from error
            time.sleep(_RETRY_S)
