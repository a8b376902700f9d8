"""Training with TensorFlow 2 and Horovod: one worker without Horovod, or gradients added up by it."""

from steptime.worker.builders.tensorflow import import_tensorflow
from steptime.worker.sessions.tensorflow import TensorFlowSession


def open_session(job, place):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    tf = import_tensorflow(job["threads"], "cpu", place.local_rank)
    tf.random.set_seed(job["seed"] * 1009 + place.rank)  # of dropout: each worker draws its own
    from steptime.frameworks.horovod_tensorflow.strategies import STRATEGIES

    return TensorFlowSession(tf, STRATEGIES[job["strategy"]](tf, job, place), job, place)
