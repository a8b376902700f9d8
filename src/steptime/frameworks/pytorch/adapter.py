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


def open_exchange(job, place):
    """Return the exchange that the network benchmark times."""
    from steptime.frameworks.pytorch.exchanging import open_collectives, open_pushing

    return (open_pushing if place.servers else open_collectives)(job, place)


def serve_exchange(job, place):
    """Be a server of the network benchmark."""
    from steptime.frameworks.pytorch.exchanging import serve_pushing

    serve_pushing(job, place)
