"""Training with PyTorch and Horovod: one worker without Horovod, or gradients averaged by it."""


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    from steptime.frameworks.horovod_pytorch.strategies import STRATEGIES
    from steptime.libraries.torch.session import TorchSession

    return TorchSession(job, context, STRATEGIES[job["strategy"]])


def open_exchange(job, context):
    """Return the exchange that the network benchmark times."""
    from steptime.frameworks.horovod_pytorch.collectives import Negotiating

    return Negotiating(job, context)
