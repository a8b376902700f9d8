"""Training in TensorFlow 2, alone or with MultiWorkerMirroredStrategy."""

import gc
import os

from steptime.worker.builders.tensorflow import TensorFlowNetwork, import_tensorflow
from steptime.worker.session import Session
from steptime.worker.weights import initial_weights


def open_session(job, place):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the job wants a GPU and there is none, ValueError when its dataset is not what it says.
    """
    tf = import_tensorflow(job["threads"], job["device"], place.local_rank, xla=job["options"].get("xla", False))
    tf.random.set_seed(job["seed"] * 1009 + place.rank)  # of dropout: each worker draws its own
    return TensorFlowSession(tf, _STRATEGIES[job["strategy"]](job, place), job, place)


class _Single(object):
    """One worker."""

    def __init__(self, job, _):
        import tensorflow as tf

        from steptime.worker.builders.tensorflow_training import TensorFlowTraining

        xla = job["options"].get("xla", False)
        self.network = _network(job)
        step = TensorFlowTraining(self.network, job["optimizer"]).step
        self.step = tf.function(step, jit_compile=True, autograph=False) if xla else step
        self.facts = {"xla": xla}

    def part(self):
        """There is nobody to wait for."""


class _AllReduce(object):
    """Several workers that add up their gradients within the step."""

    def __init__(self, job, place):
        from steptime.frameworks.tensorflow.allreduce import MirroredWorkers
        from steptime.worker.builders.tensorflow_training import TensorFlowTraining

        pack_mb = job["options"].get("pack_mb", 4.0)
        mirrored = MirroredWorkers(place, job["device"], pack_mb)
        with mirrored.scope():
            self.network = _network(job)
            training = TensorFlowTraining(self.network, job["optimizer"], mirrored.combine, 1.0 / mirrored.workers)
        self.step = lambda inputs, targets: mirrored.run(training.step, inputs, targets)
        self.part = mirrored.part
        self.facts = {"collectives": mirrored.implementation.value, "pack_mb": pack_mb}


_STRATEGIES = {"single": _Single, "allreduce": _AllReduce}


def _network(job):
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    return TensorFlowNetwork(job["workload"], weights, job["precision"])


class TensorFlowSession(Session):
    """One worker's training; Python only calls one compiled function per step."""

    def __init__(self, tf, strategy, job, place):
        self._tf = tf
        self._job = job
        self._strategy = strategy
        self._batches = _batches(job, place)
        to_itself = job["workload"]["loss"] == "mean_squared_error"
        step = (lambda inputs, _: strategy.step(inputs, inputs)) if to_itself else strategy.step
        self._advance = self._batches.feed(step)
        self._run = self._advance_first
        self._loss = None

    def step(self):
        self._loss = self._run()

    def _advance_first(self):
        """Take the first step, for which TensorFlow builds the graph.

        Building leaves so many objects behind that Python's next full collection takes as long as dozens of short
        steps, some hundred steps later; it is made here instead.
        """
        loss = self._advance()
        self._run = self._advance
        gc.collect()
        return loss

    def wait(self):
        """On a CPU the function has finished when it returns; a GPU may still be at work."""
        if self._job["device"] == "cuda":
            self._tf.test.experimental.sync_devices()

    def loss(self):
        return float(self._loss.numpy())

    def parameter_count(self):
        return self._strategy.network.parameter_count()

    def output_shape(self):
        return self._strategy.network.output_shape()

    def get_weights(self):
        return self._strategy.network.get_weights()

    def facts(self):
        tf = self._tf
        gpus = tf.config.get_visible_devices("GPU")
        device = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else "cpu"
        facts = {
            "framework_version": tf.__version__,
            "device": device,
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "operations_at_once": tf.config.threading.get_inter_op_parallelism_threads(),
            "layout": "channels last",
            "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "as built"),
            "loader_threads": self._batches.threads,
            "clock": "host, after waiting for the device in every step" if gpus else "host",
        }
        facts.update(self._strategy.facts)
        return facts

    def close(self):
        self._strategy.part()

    def abort(self):
        """Leave without a word: the others learn it from TensorFlow within a second."""


def _batches(job, place):
    """Return this worker's batches, which feed its step."""
    from steptime.worker.loaders import tensorflow as loaders

    shape, batch, seed = job["workload"]["input_shape"], job["batch_per_worker"], job["seed"]
    if job["loader"]["kind"] == "synthetic":
        return loaders.synthetic(job["workload"], batch, job["loader"]["distinct_batches"], seed, place.rank)
    device = "/GPU:0" if job["device"] == "cuda" else None
    return loaders.native(job["loader"], shape, batch, seed, place.rank, place.workers, device)
