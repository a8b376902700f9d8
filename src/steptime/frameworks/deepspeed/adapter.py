"""Training with DeepSpeed's engine: one worker, or several that share the work by a stage of ZeRO."""

import os


def open_session(job, place):
    """Return a session of one of the room's strategies.

    Raises RuntimeError when the workers do not find each other.
    """
    # What DeepSpeed's own launcher would set; it is read when DeepSpeed is imported, and later.
    os.environ.update(
        DS_ACCELERATOR=job["device"],
        RANK=str(place.rank),
        LOCAL_RANK=str(place.local_rank),
        WORLD_SIZE=str(place.workers),
        MASTER_ADDR=place.root_host,
        MASTER_PORT=str(place.root_port),
        GLOO_SOCKET_IFNAME=place.interface,
    )
    os.environ.setdefault("NCCL_SOCKET_IFNAME", place.interface)
    from steptime.frameworks.deepspeed.strategies import STRATEGIES
    from steptime.worker.sessions.torch import TorchSession

    return TorchSession(job, place, STRATEGIES[job["strategy"]])
