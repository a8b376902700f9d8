"""MultiWorkerMirroredStrategy: a TensorFlow server in every worker, gradients summed around a ring of them."""

import contextlib
import json
import os

import tensorflow as tf

from steptime.frameworks.tensorflow.communication import bytes_per_pack
from steptime.libraries.tensorflow.startup import call_directly


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
        self.workers = context.workers
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
