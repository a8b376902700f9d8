"""Training in TensorFlow 2, alone, with MultiWorkerMirroredStrategy, or with ParameterServerStrategy."""

from steptime.libraries.tensorflow.network import TensorFlowNetwork, import_tensorflow
from steptime.libraries.tensorflow.session import TensorFlowSession
from steptime.worker.framework import Framework
from steptime.worker.weights import initial_weights


def open_session(job, context):
    """Return a session of the strategy ``single``, ``allreduce`` or ``ps_async``.

    Raises RuntimeError when the job wants a GPU and there is none, ValueError when its dataset is not what it says.
    """
    if job["strategy"] == "ps_async":
        from steptime.frameworks.tensorflow.server_worker import CoordinatedSession

        return CoordinatedSession(_cpu_only(job), job, context)
    tf = import_tensorflow(job["threads"], job["device"], context.local_rank, xla=job["options"].get("xla", False))
    tf.random.set_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
    return TensorFlowSession(tf, _STRATEGIES[job["strategy"]](job, context), job, context)


def serve(job, context):
    """Be a parameter server or the coordinator until all workers have left."""
    from steptime.frameworks.tensorflow.coordinator import run_coordinator, run_server

    tf = _cpu_only(job)
    if context.role == "server":
        run_server(tf, context)
    else:
        tf.random.set_seed(job["seed"])  # of dropout
        run_coordinator(job, context)


def _cpu_only(job):
    if job["device"] != "cpu":
        raise ValueError("ps_async of tensorflow trains on the cpu only, not on %r" % job["device"])
    tf = import_tensorflow(job["threads"], "cpu", 0)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # the coordinator's own; see cluster.py
    return tf


class _Single(object):
    """One worker."""

    def __init__(self, job, _):
        import tensorflow as tf

        from steptime.libraries.tensorflow.training_step import TensorFlowTraining

        self._tf = tf
        self._xla = job["options"].get("xla", False)
        self.network = _network(job)
        self.training = TensorFlowTraining(self.network, job["optimizer"])
        self.marks = () if self._xla else ("input", "forward", "backward", "update")  # XLA cannot tell the time
        self.facts = {"xla": self._xla}

    def wrap(self, function):
        """Return ``function`` compiled by XLA, if the job wants that."""
        return self._tf.function(function, jit_compile=True, autograph=False) if self._xla else function

    def leave(self):
        """There is nobody to wait for."""


class _AllReduce(object):
    """Several workers that add up their gradients within the step."""

    def __init__(self, job, context):
        from steptime.frameworks.tensorflow.strategies import MirroredWorkers
        from steptime.libraries.tensorflow.training_step import TensorFlowTraining

        pack_mb = job["options"]["pack_mb"]
        mirrored = MirroredWorkers(context, job["device"], pack_mb)
        with mirrored.scope():
            self.network = _network(job)
            self.training = TensorFlowTraining(self.network, job["optimizer"], mirrored.combine, 1.0 / mirrored.workers)
        self.wrap = mirrored.wrap
        self.marks = ("input", "forward", "backward", "exchange", "update")
        self.leave = mirrored.leave
        self.facts = {"collectives": mirrored.implementation.value, "pack_mb": pack_mb}


_STRATEGIES = {"single": _Single, "allreduce": _AllReduce}


def _network(job):
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    return TensorFlowNetwork(job["workload"], weights, job["precision"])


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    import_tensorflow(job["threads"], job["device"], context.local_rank)
    from steptime.frameworks.tensorflow.collectives import TensorFlowBackEnd

    return TensorFlowBackEnd(job, context)


FRAMEWORK = Framework(open_session, serve=serve, open_back_end=open_back_end)
