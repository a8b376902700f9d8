"""Messages as JAX sends gradients: a compiled sum over the mesh of all workers, which gloo carries on CPUs."""

import jax
import numpy
from jax import lax

from steptime.frameworks.jax.mesh import AXIS, MeshPlacement, leave_mesh, open_mesh
from steptime.worker.back_end import BackEnd, Message


class JaxBackEnd(BackEnd):
    """One worker's device in the mesh."""

    def __init__(self, job, context):
        self._mesh = open_mesh(job, context)
        self._placement = MeshPlacement(self._mesh)

    def message(self, operation, count):
        if operation != "allreduce":
            raise ValueError("the mesh has no operation %r" % operation)
        return JaxAllreduce(self._mesh, self._placement, count)

    def facts(self):
        return {"framework_version": jax.__version__}

    def close(self):
        leave_mesh()

    def abort(self):
        """Leave it to the end of this process: JAX's farewell waits for the others."""


class JaxAllreduce(Message):
    """An array of this worker, and the sum over all."""

    def __init__(self, mesh, placement, count):
        self._placement = placement
        self._reduce = jax.jit(
            jax.shard_map(
                lambda values: lax.psum(values, AXIS), mesh=mesh, in_specs=placement.split, out_specs=placement.alike
            )
        )
        self._values = self._sum = placement.put_split(numpy.zeros(count, numpy.float32))

    def fill(self, values):
        self._values = self._placement.put_split(values)

    def run(self):
        self._sum = jax.block_until_ready(self._reduce(self._values))

    def result(self):
        return self._placement.own(self._sum)
