"""Training with PyTorch and Horovod: one worker without Horovod, or gradients averaged by it."""

from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    from steptime.frameworks.horovod_pytorch.strategies import STRATEGIES
    from steptime.libraries.torch.session import open_torch_session

    return open_torch_session(job, context, STRATEGIES)


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    from steptime.frameworks.horovod_pytorch.collectives import HorovodBackEnd

    return HorovodBackEnd(job, context)


FRAMEWORK = Framework(open_session, open_back_end=open_back_end)
