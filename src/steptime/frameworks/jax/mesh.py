"""The mesh of one device per worker, arrays that lie on it, and messages as JAX sends gradients over it.

A message is a compiled sum over the mesh, which gloo carries on CPUs.
"""

import jax
import numpy
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from steptime.worker.framework import BackEnd, Message

AXIS = "workers"


def open_mesh(job, context):
    """Return the mesh of all workers' devices, in the order of their ranks, once they have met.

    Raises RuntimeError when the job wants a GPU and there is none.
    """
    if job["strategy"] != "single":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            context.root_address,
            num_processes=context.workers,
            process_id=context.rank,
            local_device_ids=[context.local_rank],
            cluster_detection_method="deactivate",  # all is said here; a batch system's variables mean other things
            coordinator_bind_address=context.root_address,  # else everybody's network could reach it
        )
    devices = sorted(_devices(job["device"]), key=lambda device: device.process_index)
    return Mesh(numpy.array(devices), (AXIS,))


def _devices(kind):
    try:
        return jax.devices(kind)
    except RuntimeError as error:
        raise RuntimeError(
            "jax %s sees no GPU for this worker (%s); choose the device 'cpu', or an interpreter whose jax has CUDA"
            % (jax.__version__, error)
        ) from error


def leave_mesh():
    """Leave the other workers, who are waited for."""
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


class MeshPlacement(object):
    """Puts this worker's arrays on its own device, as parts of arrays over all workers."""

    def __init__(self, mesh):
        self._mesh = mesh
        (self.device,) = mesh.local_devices
        self.alike = PartitionSpec()
        """Of arrays that are the same on every worker."""
        self.split = PartitionSpec(AXIS)
        """Of arrays whose first axis is that of all workers, one after the other."""

    def put_alike(self, array):
        """Return ``array`` as one that all workers hold."""
        return self._joined(array, numpy.shape(array), self.alike)

    def put_zeros(self, array):
        """Return zeros like ``array`` that all workers hold; those of JAX are a program to compile for each shape."""
        return self.put_alike(numpy.zeros(numpy.shape(array), array.dtype))

    def put_split(self, array):
        """Return ``array`` as this worker's part of one that is joined along the first axis."""
        shape = numpy.shape(array)
        return self._joined(array, (shape[0] * self._mesh.size,) + shape[1:], self.split)

    def _joined(self, array, shape, spec):
        own = jax.device_put(array, self.device)
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, spec), [own])

    def put_like(self, array, values):
        """Return this worker's ``values`` as an array that lies on the workers as ``array`` does."""
        return (self.put_split if array.sharding.spec == self.split else self.put_alike)(values)

    def own_part(self, array):
        """Return this worker's part of an array, on its device."""
        (part,) = array.addressable_shards
        return part.data

    def own(self, array):
        """Return this worker's part of an array as a numpy array; waits for it."""
        return numpy.asarray(self.own_part(array))


class JaxAllreduce(Message):
    """An array of this worker, and the sum over all."""

    def __init__(self, back_end, count):
        self._placement = placement = MeshPlacement(back_end.mesh)
        self._reduce = jax.jit(
            jax.shard_map(
                lambda values: lax.psum(values, AXIS),
                mesh=back_end.mesh,
                in_specs=placement.split,
                out_specs=placement.alike,
            )
        )
        self._values = self._sum = placement.put_split(numpy.zeros(count, numpy.float32))

    def fill(self, values):
        self._values = self._placement.put_split(values)

    def run(self):
        self._sum = jax.block_until_ready(self._reduce(self._values))

    def result(self):
        return self._placement.own(self._sum)


class JaxBackEnd(BackEnd):
    """One worker's device in the mesh."""

    messages = {"allreduce": JaxAllreduce}

    def __init__(self, job, context):
        self.mesh = open_mesh(job, context)

    def facts(self):
        return {"framework_version": jax.__version__}

    def close(self):
        leave_mesh()
