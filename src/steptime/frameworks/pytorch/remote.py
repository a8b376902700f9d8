"""Meeting in torch's remote procedure calls, over TensorPipe, and parting."""

import os
import warnings

from torch.distributed import TCPStore, rpc

# A call ends when its answer comes, or when the launcher ends the launch: of a death it knows before we do.
_NEVER_S = 1e6


class Meeting(object):
    """All workers and servers of a launch, from the constructor until ``leave``."""

    def __init__(self, place):
        """Meet the others; the first worker keeps the list of who is there, at the root address."""
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
        self._list = TCPStore(place.root_host, place.root_port, wait_for_workers=False)
        names = ["worker-%d" % rank for rank in range(place.workers)]
        names += ["server-%d" % rank for rank in range(place.servers)]
        self._name, self._keeper, self._others = place.name, names[0], names[1:]

    def leave(self):
        """Wait until everybody has finished, answering calls meanwhile; the keeper of the list goes last.

        Torch's own leave-taking reads the list and fails now and then where the list is gone.
        """
        rpc.shutdown()
        if self._name == self._keeper:
            self._list.wait(self._others)
        else:
            self._list.set(self._name, "left")
