"""Training with MXNet and Horovod: one worker without Horovod, or gradients averaged by it."""

from steptime.libraries.mxnet.startup import set_environment
from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    set_environment(job)
    from steptime.frameworks.horovod_mxnet.session import HorovodSession

    return HorovodSession(job, context)


FRAMEWORK = Framework(open_session)
