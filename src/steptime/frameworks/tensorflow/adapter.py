"""Training in TensorFlow 2, alone or with MultiWorkerMirroredStrategy."""

from steptime.worker.builders.tensorflow import TensorFlowNetwork, import_tensorflow
from steptime.worker.sessions.tensorflow import TensorFlowSession
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
