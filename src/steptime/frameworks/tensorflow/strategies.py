"""Training with MultiWorkerMirroredStrategy or, in one process, MirroredStrategy; and messages of the former's ring."""

import contextlib
import functools
import itertools
import json
import os
from typing import Tuple

import tensorflow as tf

from steptime.frameworks.tensorflow.communication import bytes_per_pack
from steptime.libraries.tensorflow.loader import open_tensorflow_batches
from steptime.libraries.tensorflow.startup import call_directly
from steptime.libraries.tensorflow.training_step import TensorFlowTraining, build_network
from steptime.worker.framework import BackEnd, Message
from steptime.worker.process_context import micro_batches


class MirroredTraining(object):
    """Several workers that add up their gradients within the step."""

    marks: Tuple[str, ...] = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, job, context):
        pack_mb = job["options"]["pack_mb"]
        workers = MirroredWorkers(context, job["device"], pack_mb)
        xla = job["options"]["xla"]
        with workers.scope():
            self.network = build_network(job, context)
            self.training = TensorFlowTraining(
                self.network,
                job["optimizer"],
                workers.combine,
                1.0 / context.workers,
                accumulation=micro_batches(job),
                xla=xla,
            )
        if xla:
            self.marks = ()  # XLA cannot tell the time
        self.wrap = workers.wrap
        self.leave = workers.leave
        self.facts = {"one_process": False, "collectives": workers.implementation.value, "pack_mb": pack_mb, "xla": xla}


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
        nccl = device == "cuda" and context.workers > 1
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


class OneProcessTraining(object):
    """MirroredStrategy: this process computes for all workers of the host, each on its own device."""

    marks = ()
    """The graph of each worker would have its own moments."""

    def __init__(self, job, context):
        kind = "GPU" if job["device"] == "cuda" else "CPU"
        self._strategy = tf.distribute.MirroredStrategy(["/%s:%d" % (kind, rank) for rank in range(context.workers)])
        xla = job["options"]["xla"]
        with self._strategy.scope():
            self.network = build_network(job, context)
            self.training = TensorFlowTraining(
                self.network,
                job["optimizer"],
                self._combine,
                1.0 / context.workers,
                accumulation=micro_batches(job),
                xla=xla,
            )
        self.local_results = self._strategy.experimental_local_results
        self.facts = {"strategy": type(self._strategy).__name__, "one_process": True, "xla": xla}

    def distribute(self, values):
        """Return a list of one value for each worker as one value of the strategy."""
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: values[context.replica_id_in_sync_group]
        )

    def wrap(self, function):
        """Return what runs ``function`` as every worker's replica, and returns what they return."""
        return lambda *args: self._strategy.run(function, args=args)

    def _combine(self, gradients):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)

    def leave(self):
        """No other worker computes."""


class ReplicaBatches(object):
    """The batches of all workers of a process: each value is the strategy's, with one tensor for each worker."""

    def __init__(self, job, context, strategy):
        on_gpu = job["device"] == "cuda"
        own = [
            open_tensorflow_batches(job, rank, context.workers, "/GPU:%d" % rank if on_gpu else None)
            for rank in range(context.workers)
        ]
        self.threads, self.ahead = own[0].threads, own[0].ahead
        self._own = own
        self._takers = [each.taker() for each in own]
        self._strategy = strategy
        self._take = self._load
        if job["loader"]["kind"] == "synthetic":
            made = [self._load() for _ in range(job["loader"]["distinct_batches"])]
            self._take = functools.partial(next, itertools.cycle(made))

    def feed(self, step):
        """Return a function without arguments that runs ``step``, which is compiled, on the next batches."""
        compiled = tf.function(step, autograph=False)
        take = self.taker()
        return lambda: compiled(*take())

    def taker(self):
        """Return a function that takes the next batch of every worker and returns them."""
        return self._take

    def copies(self):
        """Return what ``feed`` is, for one batch of each worker that stays in the host's memory and is copied."""
        takers = [each.copies()(lambda *batch: batch) for each in self._own]

        def feed(step):
            compiled = tf.function(step, autograph=False)
            return lambda: compiled(*self._together(takers))

        return feed

    def _load(self):
        return self._together(self._takers)

    def _together(self, takers):
        return tuple(map(self._strategy.distribute, zip(*[take() for take in takers])))


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
