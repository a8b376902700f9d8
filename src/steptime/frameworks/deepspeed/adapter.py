"""Training with DeepSpeed's engine: one worker, or several that share the work by a stage of ZeRO."""

import os

from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of one of DeepSpeed's strategies.

    Raises RuntimeError when the workers do not find each other.
    """
    # What DeepSpeed's own launcher would set; it is read when DeepSpeed is imported, and later.
    os.environ.update(
        DS_ACCELERATOR=job["device"],
        RANK=str(context.rank),
        LOCAL_RANK=str(context.local_rank),
        WORLD_SIZE=str(context.workers),
        MASTER_ADDR=context.root_host,
        MASTER_PORT=str(context.root_port),
        GLOO_SOCKET_IFNAME=context.interface,
    )
    os.environ.setdefault("NCCL_SOCKET_IFNAME", context.nccl_interface)
    from steptime.frameworks.deepspeed.strategies import STRATEGIES
    from steptime.libraries.torch.session import open_torch_session

    return open_torch_session(job, context, STRATEGIES)


FRAMEWORK = Framework(open_session)
