"""The sums of gradients over MPI: all behind the backward pass, or layer by layer during it.

Gradients are scaled by each worker's share before they are summed, so that sums are averages.
"""

import numpy


def open_reduction(name, solver, context):
    """Hang the reduction ``name`` into ``solver``'s steps and return it; ``close()`` ends MPI.

    Raises RuntimeError when MPI sees other workers than the launcher started.
    """
    import mpi4py

    # Thread support stays as it is by default, although one thread calls MPI: without it MPICH waits without yielding.
    mpi4py.rc.finalize = False  # a worker that fails must not wait for the others in here
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    context.require_rank("MPI", world.rank, world.size)
    return {"after": ReductionAfterBackward, "layerwise": LayerwiseReduction}[name](MPI, solver)


class Reduction(object):
    """What both ways share.

    ``world`` is whom gradients are summed with, and ``wait_all`` ends a list of its requests. The breakdown of a step
    puts others in their places.
    """

    def __init__(self, mpi):
        self._mpi = mpi
        self.world = mpi.COMM_WORLD
        self.wait_all = mpi.Request.Waitall

    def finish(self):
        """Sum what has not been summed yet, and return when all sums are there."""
        raise NotImplementedError

    def whole(self, gradients):
        """Sum ``gradients``, a list in backward order, as a step does, with nothing computed meanwhile."""
        raise NotImplementedError

    def facts(self):
        """Return what is worth keeping with the record."""
        return {"mpi": self._mpi.Get_library_version().splitlines()[0].rstrip("\0 ")}

    def close(self):
        """End MPI together with all other workers."""
        self._mpi.Finalize()  # a rank that ends without it counts as a failed one


class ReductionAfterBackward(Reduction):
    """All gradients in one vector, summed when the backward pass is over."""

    def __init__(self, mpi, solver):
        super(ReductionAfterBackward, self).__init__(mpi)
        gradients = [gradient for _, gradient in solver.gradients()]
        self._flat = numpy.empty(sum(gradient.size for gradient in gradients), dtype=numpy.float32)
        self._pairs, start = [], 0
        for gradient in gradients:
            self._pairs.append((gradient, self._flat[start : start + gradient.size].reshape(gradient.shape)))
            start += gradient.size
        solver.on_gradients(self.finish)

    def finish(self):
        for gradient, part in self._pairs:
            part[...] = gradient
        self.world.Allreduce(self._mpi.IN_PLACE, self._flat)
        for gradient, part in self._pairs:
            gradient[...] = part

    def whole(self, _):
        self.finish()


class LayerwiseReduction(Reduction):
    """Each layer's gradients where Caffe keeps them, from when they are known; all are there before the update.

    Between layers MPI is asked how the oldest sum is doing, since it only moves data while it is asked something:
    pycaffe holds Python's global lock, so that no thread could ask meanwhile, and a thread of MPI's own would compute
    on the worker's only core.
    """

    def __init__(self, mpi, solver):
        super(LayerwiseReduction, self).__init__(mpi)
        self._pending = []
        solver.on_layer_gradients(self._start)
        solver.on_gradients(self.finish)

    def _start(self, gradients):
        pending, sum_up, in_place = self._pending, self.world.Iallreduce, self._mpi.IN_PLACE
        for gradient in reversed(gradients):
            pending.append(sum_up(in_place, gradient))
        while pending and pending[0].Test():
            del pending[0]

    def finish(self):
        self.wait_all(self._pending)
        del self._pending[:]

    def whole(self, gradients):
        for gradient in gradients:
            self._start([gradient])
        self.finish()
