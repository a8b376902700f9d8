"""Messages as MultiWorkerMirroredStrategy sends gradients: a compiled function that sums around a ring."""

import tensorflow as tf

from steptime.frameworks.tensorflow.strategies import MirroredWorkers
from steptime.worker.back_end import BackEnd, Message


class TensorFlowBackEnd(BackEnd):
    """One worker of the strategy."""

    def __init__(self, job, context):
        self._workers = MirroredWorkers(context, job["device"], job["options"]["pack_mb"])

    def message(self, operation, count):
        if operation != "allreduce":
            raise ValueError("MultiWorkerMirroredStrategy has no operation %r" % operation)
        return TensorFlowAllreduce(self._workers, count)

    def facts(self):
        return {"framework_version": tf.__version__, "collectives": self._workers.implementation.value}

    def close(self):
        self._workers.leave()

    def abort(self):
        """Leave without a word: the others learn it from TensorFlow within a second."""


class TensorFlowAllreduce(Message):
    """A tensor of this worker; the sum is another."""

    def __init__(self, workers, count):
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
