"""Training with PyTorch alone: one worker, DistributedDataParallel, FSDP2, or parameter servers over its RPC."""


def open_session(job, place):
    """Return a session of one of the room's strategies."""
    from steptime.frameworks.pytorch.strategies import STRATEGIES
    from steptime.worker.sessions.torch import TorchSession

    return TorchSession(job, place, STRATEGIES[job["strategy"]])


def serve(job, place):
    """Be a parameter server until all workers have left."""
    from steptime.frameworks.pytorch.serving import serve_piece

    serve_piece(job, place)
