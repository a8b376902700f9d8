"""numpy_ring as a framework of steptime: a session that trains a chain of linear layers."""

import numpy

from steptime.worker.batches import open_batches
from steptime.worker.framework import Framework
from steptime.worker.imperative import ImperativeSession
from steptime.worker.usage import compute_threads
from steptime.worker.weights import initial_weights

from .communication import bucket_lengths
from .network import Network
from .ring import Ring


class RingSession(ImperativeSession):
    """One worker's network and optimizer, and its place in the ring."""

    def __init__(self, job, context):
        workload = job["workload"]
        initial = initial_weights(workload["layers"], job["seed"])
        self.network = Network(workload, initial, job["label_smoothing"])
        self.batches = open_batches(job, context.rank, context.workers, _batch, _open_folder)
        self.exchanges = job["strategy"] == "allreduce" and context.workers > 1
        self._shape = [job["batch_per_worker"]] + workload["layers"][-1]["output_shape"]
        self._optimizer = job["optimizer"]
        self._rate = self._optimizer["learning_rate"]
        self._velocity = numpy.zeros_like(self.network.values)
        self._buckets = self._cut(job["options"].get("bucket_kb", 0.0) * 1024)
        self._ring = Ring(context)
        self._loss = None

    def _cut(self, limit_bytes):
        """Return the buckets as parts of the vector of all gradients."""
        arrays = list(self.network.gradients.values())
        ends, start = [], 0
        for length in bucket_lengths([array.nbytes for array in arrays], limit_bytes):
            start += length
            ends.append(sum(array.size for array in arrays[:start]))
        return numpy.split(self.network.slopes, ends[:-1])

    def forward(self, inputs, targets):
        """Return what the backward pass needs: every layer's output, and the loss's slope in the last."""
        self._loss, outputs, slope = self.network.forward(inputs, targets)
        return outputs, slope

    def backward(self, loss):
        self.network.backward(*loss)

    def exchange(self):
        """Average the gradients over all workers, bucket by bucket."""
        for bucket in self._buckets:
            self._ring.average(bucket)

    def update(self):
        """Update the weights: stochastic gradient descent with momentum and weight decay."""
        slopes, values, settings = self.network.slopes, self.network.values, self._optimizer
        slopes += numpy.float32(settings["weight_decay"]) * values
        self._velocity *= numpy.float32(settings["momentum"])
        self._velocity += slopes
        values -= numpy.float32(self._rate) * self._velocity

    def set_learning_rate(self, rate):
        self._rate = rate

    def outputs(self, inputs):
        return self.network.outputs(inputs)[-1]

    def state(self):
        return {"values": self.network.values.copy(), "velocity": self._velocity.copy()}

    def set_state(self, arrays):
        self.network.values[:] = arrays["values"]
        self._velocity[:] = arrays["velocity"]

    def wait(self):
        """Return at once: numpy has finished when a step returns."""

    def loss(self):
        return self._loss

    def parameter_count(self):
        return self.network.values.size

    def output_shape(self):
        return self._shape

    def get_weights(self):
        return {name: array.copy() for name, array in self.network.weights.items()}

    def facts(self):
        return {
            "framework_version": numpy.__version__,
            "device": "cpu",
            "threads": compute_threads(),
            "buckets": len(self._buckets),
        }

    def close(self):
        self.batches.close()
        self._ring.close()


def _batch(inputs, targets):
    """Return a batch as the network takes it: as it is."""
    return inputs, targets


def _open_folder(_):
    """Refuse a folder of images, for which a framework needs a decoder."""
    message = "numpy_ring reads datasets of arrays, such as digits, and decodes no image files"
    raise ValueError(message)


FRAMEWORK = Framework(open_session=RingSession)
