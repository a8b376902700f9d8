"""The workers of a launch as Paddle's group of processes over gloo, and DataParallel in it."""

import os

import paddle
from paddle import distributed


def join_group(context):
    """Enter Paddle's group of all workers, over gloo.

    Paddle takes everything from the environment; its own launcher would set the same variables.
    """
    os.environ.update(
        PADDLE_DISTRI_BACKEND="gloo",
        PADDLE_TRAINER_ID=str(context.rank),
        PADDLE_TRAINERS_NUM=str(context.workers),
        PADDLE_TRAINER_ENDPOINTS=",".join(context.worker_addresses),
        PADDLE_CURRENT_ENDPOINT=context.worker_addresses[context.rank],
        PADDLE_MASTER=context.root_address,
        GLOO_SOCKET_IFNAME=context.interface,
    )
    distributed.init_parallel_env()
    context.require_rank("Paddle", distributed.get_rank(), distributed.get_world_size())


def leave_group():
    """Leave the group; all workers call it."""
    distributed.barrier()
    distributed.destroy_process_group()


def data_parallel(layer, options):
    """Return ``layer`` in DataParallel, which averages gradients bucket by bucket in the backward pass."""
    return paddle.DataParallel(
        layer, comm_buffer_size=options["bucket_mb"], last_comm_buffer_size=options["last_bucket_mb"]
    )


def bucket_values(parallel):
    """Return how many values each bucket of a DataParallel has, in the order in which they are sent."""
    sizes = [parameter.size for parameter in parallel.parameters() if parameter.trainable]
    return [int(sum(sizes[place] for place in bucket)) for bucket in reversed(parallel.group_indices)]
