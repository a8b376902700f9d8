"""Training with PyTorch alone: one worker, DistributedDataParallel, or FSDP2."""


def open_session(job, place):
    """Return a session of the strategy ``single``, ``allreduce`` or ``fsdp``."""
    from steptime.frameworks.pytorch.strategies import STRATEGIES
    from steptime.worker.sessions.torch import TorchSession

    return TorchSession(job, place, STRATEGIES[job["strategy"]])
