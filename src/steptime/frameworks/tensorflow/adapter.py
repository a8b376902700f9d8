"""Training in TensorFlow 2, alone, with MultiWorkerMirroredStrategy, or with ParameterServerStrategy."""

from typing import Any

from steptime.frameworks.tensorflow.one_process import fits_one_process, open_one_process
from steptime.libraries.tensorflow.session import TensorFlowSession, open_own_reference
from steptime.libraries.tensorflow.startup import import_tensorflow
from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of the strategy ``single``, ``allreduce`` or ``ps_async``.

    Raises RuntimeError when the job wants a GPU and there is none, ValueError when its dataset is another one.
    """
    if job["strategy"] == "ps_async":
        from steptime.frameworks.tensorflow.server_worker import CoordinatedSession

        return CoordinatedSession(_cpu_only(job), job, context)
    if "own_reference" in job:
        return open_own_reference(job, context)
    if fits_one_process(job, context):
        return open_one_process(job, context)
    tf = import_tensorflow(job, context.local_rank)
    tf.random.set_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
    if job["strategy"] == "allreduce":
        from steptime.frameworks.tensorflow.strategies import MirroredTraining

        strategy: Any = MirroredTraining(job, context)
    else:
        from steptime.libraries.tensorflow.training_step import SingleTraining

        strategy = SingleTraining(job, context)
    return TensorFlowSession(tf, strategy, job, context)


def serve(job, context):
    """Be a parameter server or the coordinator until all workers have left."""
    tf = _cpu_only(job)  # before whatever else imports TensorFlow
    from steptime.frameworks.tensorflow.coordinator import run_coordinator, run_server

    if context.role == "server":
        return run_server(tf, job, context)
    tf.random.set_seed(job["seed"])  # of dropout
    run_coordinator(job, context)
    return None


def _cpu_only(job):
    if job["device"] != "cpu":
        raise ValueError("ps_async of tensorflow trains on the cpu only, not on %r" % job["device"])
    tf = import_tensorflow(job, 0)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # the coordinator's own; see cluster.py
    return tf


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    import_tensorflow(job, context.local_rank)
    from steptime.frameworks.tensorflow.strategies import TensorFlowBackEnd

    return TensorFlowBackEnd(job, context)


FRAMEWORK = Framework(open_session, serve=serve, open_back_end=open_back_end)
