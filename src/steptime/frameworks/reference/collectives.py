"""The average of a vector over all workers, through a star of TCP connections around worker 0.

Worker 0 adds the vectors in the order of the ranks, whichever arrives first, and sends the one result to all: every
worker then holds the same bits, in every run. A ring would spread the traffic better; here a fixed order matters more.
"""

import numpy

from steptime.worker.framework import BackEnd, Message
from steptime.worker.handshake import accept_peers, connect_peer, open_listener

_PATIENCE_S = 120.0


def connect(context):
    """Return a callable with ``close`` that averages a vector of floats over all workers, in place.

    Raises RuntimeError when the workers do not find each other within two minutes.
    """
    if context.workers == 1:
        return NoAverage()
    return StarCentre(context) if context.rank == 0 else StarSpoke(context)


class NoAverage(object):
    """A single worker has all values."""

    def __call__(self, vector):
        """Leave ``vector`` as it is: it is the average of one."""

    def close(self):
        """Nothing is held."""


class StarCentre(object):
    """Worker 0: collects, adds and answers."""

    def __init__(self, context):
        listener = open_listener(context.root_host, context.root_port)
        names = ["worker-%d" % rank for rank in range(1, context.workers)]
        found = accept_peers(listener, context.secret, names, _PATIENCE_S)
        self._peers = dict(enumerate((found[name] for name in names), start=1))
        self._count = context.workers

    def __call__(self, vector):
        """Replace ``vector`` by the average over all workers."""
        received = numpy.empty_like(vector)
        for rank in sorted(self._peers):
            _receive(self._peers[rank], received, "worker %d" % rank)
            vector += received
        vector /= self._count
        for rank in sorted(self._peers):
            self._peers[rank].sendall(_bytes(vector))

    def close(self):
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()


class StarSpoke(object):
    """Any other worker: sends its vector and takes the answer."""

    def __init__(self, context):
        address = (context.root_host, context.root_port)
        self._centre = connect_peer(lambda: address, context.secret, context.name, _PATIENCE_S)

    def __call__(self, vector):
        """Replace ``vector`` by the average over all workers."""
        self._centre.sendall(_bytes(vector))
        _receive(self._centre, vector, "worker 0")

    def close(self):
        """Close the connection."""
        self._centre.close()


def _bytes(vector):
    return memoryview(vector).cast("B")


def _receive(connection, buffer, sender):
    """Fill ``buffer`` from ``connection`` and return it; raise ConnectionError when the other side is gone."""
    view = _bytes(buffer)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionError("%s closed its connection in the middle of a step" % sender)
        view = view[count:]
    return buffer


class StarAllreduce(Message):
    """A vector whose average comes back."""

    def __init__(self, back_end, count):
        self._average, self._workers = back_end.average, back_end.workers
        self._own = numpy.zeros(count, dtype=numpy.float32)
        self._result = numpy.zeros(count, dtype=numpy.float32)

    def fill(self, values):
        self._own[:] = values

    def run(self):
        self._result[:] = self._own
        self._average(self._result)

    def result(self):
        return self._result * self._workers


class StarBackEnd(BackEnd):
    """The connections of one worker."""

    messages = {"allreduce": StarAllreduce}

    def __init__(self, context):
        self.average = connect(context)
        self.workers = context.workers

    def facts(self):
        return {"framework_version": numpy.__version__}

    def close(self):
        self.average.close()

    def abort(self):
        self.close()
