"""Messages as the reference averages gradients: plain sockets, a star around worker 0."""

import numpy

from steptime.frameworks.reference.exchange import connect
from steptime.worker.exchange import Exchange, Message


class Star(Exchange):
    """The connections of one worker."""

    def __init__(self, place):
        self._average = connect(place)
        self._workers = place.workers

    def message(self, operation, count):
        if operation != "allreduce":
            raise ValueError("the reference has no operation %r" % operation)
        return Averaged(count, self._average, self._workers)

    def facts(self):
        return {"framework_version": numpy.__version__}

    def close(self):
        self._average.close()


class Averaged(Message):
    """A vector whose average comes back."""

    def __init__(self, count, average, workers):
        self._average, self._workers = average, workers
        self._own = numpy.zeros(count, dtype=numpy.float32)
        self._result = numpy.zeros(count, dtype=numpy.float32)

    def fill(self, values):
        self._own[:] = values

    def run(self):
        self._result[:] = self._own
        self._average(self._result)

    def result(self):
        return self._result * self._workers
