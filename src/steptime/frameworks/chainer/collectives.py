"""ChainerMN's communicators, and the message benchmark's back end on the MPI below them."""

import chainer
import numpy
from mpi4py import MPI

from steptime.frameworks.chainer.communication import COMMUNICATORS, communicator_for
from steptime.worker.framework import FED, BackEnd, Message


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


def require_double_buffering(communicator):
    """Raise ValueError where ``communicator`` cannot exchange beside the next step, as only ``pure_nccl`` can."""
    if type(communicator).__name__ != "PureNcclCommunicator":
        raise ValueError(
            "double_buffering needs ChainerMN's communicator pure_nccl, on CUDA devices, and this one is %s: "
            "set double_buffering to false" % type(communicator).__name__
        )


def double_buffered(optimizer, communicator):
    """Return ChainerMN's wrapper of ``optimizer``, which updates with the averaged gradients of the step before."""
    import chainermn

    return chainermn.create_multi_node_optimizer(optimizer, communicator, double_buffering=True)


def communicator_facts(communicator):
    """Return what is worth keeping of a communicator: its class, and the version of MPI."""
    version = MPI.Get_library_version().splitlines()[0].rstrip("\0 ")
    return {"communicator": type(communicator).__name__, "mpi": version}


def leave_mpi(communicator):
    """End MPI together with all other workers."""
    communicator.finalize()
    MPI.Finalize()  # a rank that ends without it counts as a failed one


class ChainerAllreduce(Message):
    """A gradient: summed where it lies, as ``multi_node_mean_grad`` does before it divides."""

    becomes = FED

    def __init__(self, back_end, count):
        self._world = back_end.world
        self._values = numpy.zeros(count, dtype=numpy.float32)

    def fill(self, values):
        self._values[:] = values

    def run(self):
        self._world.Allreduce(MPI.IN_PLACE, self._values)

    def result(self):
        return self._values


class ChainerIncast(Message):
    """Rows of all workers but the first, which answers with one value."""

    def __init__(self, back_end, count):
        self._world = world = back_end.world
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


class ChainerMNBackEnd(BackEnd):
    """The MPI communicator below ChainerMN's own for CPUs."""

    messages = {"allreduce": ChainerAllreduce, "incast": ChainerIncast}

    def __init__(self, job, context):
        self._communicator = open_communicator(job["options"]["communicator"], job["device"], context)
        self.world = self._communicator.mpi_comm

    def facts(self):
        return dict(communicator_facts(self._communicator), framework_version=chainer.__version__)

    def close(self):
        leave_mpi(self._communicator)
