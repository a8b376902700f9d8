"""ChainerMN's communicators, and the message benchmark's back end on the MPI below them."""

import chainer
import numpy
from mpi4py import MPI

from steptime.frameworks.chainer.communication import COMMUNICATORS, communicator_for
from steptime.worker.back_end import FED, BackEnd, Message


def open_communicator(name, device, context):
    """Return ChainerMN's communicator ``name`` over all workers; ``auto`` is the device's usual one.

    Raises ValueError for a communicator that the device does not have, and RuntimeError when MPI sees other workers
    than the launcher started.
    """
    choices = COMMUNICATORS[device]
    name = communicator_for(name, device)
    if name not in choices:
        raise ValueError(
            "ChainerMN's communicator %r does not work on the device %s (choices: auto, %s)"
            % (name, device, ", ".join(choices))
        )
    import chainermn  # initialises MPI

    communicator = chainermn.create_communicator(name)
    context.require_rank("MPI", communicator.rank, communicator.size)
    return communicator


class ChainerMNBackEnd(BackEnd):
    """The MPI communicator below ChainerMN's own for CPUs."""

    def __init__(self, job, context):
        self._communicator = open_communicator(job["options"]["communicator"], job["device"], context)
        self._world = self._communicator.mpi_comm

    def message(self, operation, count):
        return {"allreduce": ChainerAllreduce, "incast": ChainerIncast}[operation](self._world, count)

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


class ChainerAllreduce(Message):
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


class ChainerIncast(Message):
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
