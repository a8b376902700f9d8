"""Training with PyTorch and Horovod: one worker without Horovod, or gradients averaged by it."""


def open_session(job, place):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    from steptime.frameworks.horovod_pytorch.strategies import STRATEGIES
    from steptime.worker.sessions.torch import TorchSession

    return TorchSession(job, place, STRATEGIES[job["strategy"]])


def open_exchange(job, place):
    """Return the exchange that the network benchmark times."""
    from steptime.frameworks.horovod_pytorch.exchanging import Negotiating

    return Negotiating(job, place)
