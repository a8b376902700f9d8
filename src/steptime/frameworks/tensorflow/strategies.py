"""Training alone or with MultiWorkerMirroredStrategy, whose workers sum around a ring; and the ring's messages."""

import contextlib
import json
import os

import tensorflow as tf

from steptime.frameworks.tensorflow.communication import bytes_per_pack
from steptime.libraries.tensorflow.startup import call_directly
from steptime.libraries.tensorflow.training_step import SingleTraining, TensorFlowTraining, build_network
from steptime.worker.back_end import BackEnd, Message


class XlaTraining(SingleTraining):
    """One worker, whose step is compiled by XLA if the job wants that."""

    def __init__(self, job):
        super(XlaTraining, self).__init__(job)
        self._xla = job["options"].get("xla", False)
        self.facts = {"xla": self._xla}
        if self._xla:
            self.marks = ()  # XLA cannot tell the time

    def wrap(self, function):
        return tf.function(function, jit_compile=True, autograph=False) if self._xla else function


class MirroredTraining(object):
    """Several workers that add up their gradients within the step."""

    marks = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, job, context):
        pack_mb = job["options"]["pack_mb"]
        workers = MirroredWorkers(context, job["device"], pack_mb)
        with workers.scope():
            self.network = build_network(job)
            self.training = TensorFlowTraining(self.network, job["optimizer"], workers.combine, 1.0 / context.workers)
        self.wrap = workers.wrap
        self.leave = workers.leave
        self.facts = {"collectives": workers.implementation.value, "pack_mb": pack_mb}


class MirroredWorkers(object):
    """The strategy of one launch; must be made before anything else touches TensorFlow's devices."""

    def __init__(self, context, device, pack_mb):
        """Join the other workers.

        Args:
            context: of this worker; the servers listen at ``context.worker_addresses``.
            device: ``cpu`` or ``cuda``.
            pack_mb: gradients are sent in packs of so many megabytes; 0 sends one pack.
        """
        implementations = tf.distribute.experimental.CommunicationImplementation
        gpus = len(tf.config.list_physical_devices("GPU"))
        # Two workers on one GPU, which NCCL refuses, still can use the ring.
        nccl = device == "cuda" and context.local_rank < gpus and context.workers > 1
        self.implementation = implementations.NCCL if nccl else implementations.RING
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": context.worker_addresses}, "task": {"type": "worker", "index": context.rank}}
        )
        call_directly(context.worker_addresses)
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                bytes_per_pack=bytes_per_pack(pack_mb), implementation=self.implementation
            )
        )

    def scope(self):
        """Return the context in which variables are made, so that all workers start from worker 0's values."""
        return self._strategy.scope()

    def combine(self, gradients):
        """Return the sums of ``gradients`` over all workers; called within a step."""
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)

    def wrap(self, function):
        """Return what runs ``function`` as this worker's replica, and returns what it returns."""
        return lambda *args: self._strategy.run(function, args=args)

    def leave(self):
        """Wait for the others once more, so that no worker leaves while another still fetches its last sums.

        A failure means that another worker is gone already, which it may be: it has passed its last step.
        """
        together = tf.function(lambda: self._strategy.run(lambda: self.combine([tf.ones(1)])), autograph=False)
        with contextlib.suppress(tf.errors.OpError):
            together()


class TensorFlowAllreduce(Message):
    """A tensor of this worker; the sum is another."""

    def __init__(self, back_end, count):
        workers = back_end.workers
        self._values = self._sum = tf.zeros(count)
        self._reduce = tf.function(
            workers.wrap(lambda values: workers.combine([tf.identity(values)])[0]), autograph=False
        )

    def fill(self, values):
        self._values = tf.constant(values)

    def run(self):
        self._sum = self._reduce(self._values)

    def result(self):
        return self._sum.numpy()


class TensorFlowBackEnd(BackEnd):
    """One worker of the strategy."""

    messages = {"allreduce": TensorFlowAllreduce}

    def __init__(self, job, context):
        self.workers = MirroredWorkers(context, job["device"], job["options"]["pack_mb"])

    def facts(self):
        return {"framework_version": tf.__version__, "collectives": self.workers.implementation.value}

    def close(self):
        self.workers.leave()
