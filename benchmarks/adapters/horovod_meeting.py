"""What ``horovodrun`` would do for a plain loop on this host: say who it is and hold the meeting."""

import os
import socket
import threading
import time


def meet(rank: str, workers: str, address: str) -> None:
    """Set the variables that Horovod reads when it starts; worker 0 serves the meeting at ``address``."""
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments  # noqa: PLC0415 - not in the core
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer  # noqa: PLC0415

    host, _, port = address.rpartition(":")
    os.environ.update(
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        HOROVOD_GLOO_IFACE="lo",
        HOROVOD_GLOO_RENDEZVOUS_ADDR=host,
        HOROVOD_GLOO_RENDEZVOUS_PORT=port,
        HOROVOD_HOSTNAME=host,
        HOROVOD_RANK=rank,
        HOROVOD_SIZE=workers,
        HOROVOD_LOCAL_RANK=rank,
        HOROVOD_LOCAL_SIZE=workers,
        HOROVOD_CROSS_RANK="0",
        HOROVOD_CROSS_SIZE="1",
    )
    if rank == "0":
        server = RendezvousHTTPServer((host, int(port)), RendezvousHandler, 0)
        server.init(get_host_assignments([HostInfo(host, int(workers))], int(workers)))
        threading.Thread(target=server.serve_forever, args=(None,), daemon=True).start()
        return
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
