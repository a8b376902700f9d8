"""Meeting in torch's remote procedure calls, over TensorPipe."""

import os
import warnings

from torch.distributed import rpc

# A call ends when its answer comes, or when the launcher ends the launch: of a death it knows before we do.
_NEVER_S = 1e6


def enter(place):
    """Meet all workers and servers of the launch; the first worker listens at the root address."""
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = place.interface
    everybody = place.workers + place.servers
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=max(2, everybody), rpc_timeout=_NEVER_S, init_method="tcp://" + place.root_address
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed")  # torch's own doing
        rpc.init_rpc(
            place.name,
            rank=place.rank + (place.workers if place.role == "server" else 0),
            world_size=everybody,
            rpc_backend_options=options,
        )


def leave():
    """Wait until all workers have finished, answering their calls meanwhile, and leave."""
    rpc.shutdown()
