"""Messages as ChainerMN sends gradients: mpi4py on numpy arrays, in place."""

import chainer
import numpy
from mpi4py import MPI

from steptime.frameworks.chainer.communicating import open_communicator
from steptime.worker.exchange import FED, Exchange, Message


class Communicating(Exchange):
    """The MPI communicator below ChainerMN's own for CPUs."""

    def __init__(self, job, place):
        self._communicator = open_communicator(job["options"].get("communicator", "auto"), job["device"], place)
        self._world = self._communicator.mpi_comm

    def message(self, operation, count):
        return {"allreduce": Reduced, "incast": Gathered}[operation](self._world, count)

    def facts(self):
        return {
            "framework_version": chainer.__version__,
            "communicator": type(self._communicator).__name__,
            "mpi": MPI.Get_library_version().splitlines()[0].rstrip("\0 "),
        }

    def close(self):
        self._communicator.finalize()
        MPI.Finalize()  # a rank that ends without it counts as a failed one

    def abort(self):
        """Leave MPI alone: finalising waits for the others."""


class Reduced(Message):
    """A gradient: summed where it lies, as ``multi_node_mean_grad`` does before it divides."""

    becomes = FED

    def __init__(self, world, count):
        self._world = world
        self._values = numpy.zeros(count, dtype=numpy.float32)

    def fill(self, values):
        self._values[:] = values

    def run(self):
        self._world.Allreduce(MPI.IN_PLACE, self._values)

    def result(self):
        return self._values


class Gathered(Message):
    """Rows of all workers but the first, which answers with one value."""

    def __init__(self, world, count):
        self._world = world
        rows = 1 if world.rank else world.size - 1
        self._rows = numpy.zeros((rows, count), dtype=numpy.float32)
        self._answer = numpy.zeros(1, dtype=numpy.float32)

    def fill(self, values):
        self._rows[0] = values

    def run(self):
        if self._world.rank:
            self._world.Send(self._rows[0], 0)
        else:
            MPI.Request.Waitall([self._world.Irecv(row, rank) for rank, row in enumerate(self._rows, 1)])
        self._world.Bcast(self._answer)

    def result(self):
        return None if self._world.rank else self._rows
