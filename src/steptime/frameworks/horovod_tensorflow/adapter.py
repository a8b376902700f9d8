"""Training with TensorFlow 2 and Horovod: one worker without Horovod, or gradients added up by it."""

from steptime.libraries.tensorflow.network import import_tensorflow
from steptime.libraries.tensorflow.session import TensorFlowSession
from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    tf = import_tensorflow(job["threads"], "cpu", context.local_rank)
    tf.random.set_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
    from steptime.frameworks.horovod_tensorflow.strategies import STRATEGIES

    return TensorFlowSession(tf, STRATEGIES[job["strategy"]](tf, job, context), job, context)


FRAMEWORK = Framework(open_session)
