"""The group of workers in Horovod: joining and leaving it, for every tensor library that Horovod supports.

Horovod reads a process's rank from environment variables that its own launcher sets, and its rendezvous is a server
that this launcher runs. Here steptime's launchers start the processes: the variables come from the process's context,
and worker 0 runs Horovod's server at the launch's root address.
"""

import importlib
import os
import socket
import threading
import time
from typing import Any, List

from steptime.libraries.horovod.communication import fusion_bytes
from steptime.worker.process_context import Job, ProcessContext

_RENDEZVOUS_LIMIT_S = 300.0
_POLL_S = 0.05
TIMELINE = "timeline.json"
"""In the run folder: where Horovod's coordinator, worker 0, writes its timeline if it is asked to."""


class HorovodWorkers(object):
    """This worker among the others: in Horovod from the constructor until ``leave``.

    ``hvd``
        Horovod for the framework.
    ``facts``
        What is worth keeping of how the workers communicate.
    """

    def __init__(self, library: str, context: ProcessContext, job: Job) -> None:
        """Join the other workers.

        Args:
            library: Horovod's name of the framework, as in ``horovod.torch``.
            context: of this worker.
            job: its options are ``controller`` (``gloo`` or ``mpi``, which carries the gradients and their
                announcements), ``fusion_mb`` (gradients that are ready together are sent together, up to so many MiB),
                ``cycle_ms`` (how often Horovod looks for gradients that are ready), ``timeline`` (whether worker 0
                writes one), and perhaps ``autotune`` (whether Horovod chooses the two numbers itself while it trains).

        Raises RuntimeError when worker 0 does not come, or MPI sees other workers than the launcher started.
        """
        options = job["options"]
        self.facts = {
            name: options[name] for name in ("controller", "fusion_mb", "cycle_ms", "autotune") if name in options
        }
        controller = options["controller"]
        settings = {
            "HOROVOD_CONTROLLER": controller,
            "HOROVOD_CPU_OPERATIONS": controller,
            "HOROVOD_GLOO_IFACE": context.interface,
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "%d" % _RENDEZVOUS_LIMIT_S,
            "HOROVOD_FUSION_THRESHOLD": "%d" % fusion_bytes(options["fusion_mb"]),
            "HOROVOD_CYCLE_TIME": "%g" % options["cycle_ms"],
        }
        if options.get("autotune"):
            settings["HOROVOD_AUTOTUNE"] = "1"
        if options["timeline"]:
            settings["HOROVOD_TIMELINE"] = os.path.join(context.folder, TIMELINE)
        os.environ.update(settings)  # read when Horovod starts
        self.hvd = importlib.import_module("horovod." + library)
        if controller == "gloo":
            self._init_with_gloo(context)
        else:
            self.hvd.init()
        context.require_rank("Horovod", self.hvd.rank(), self.hvd.size())

    def _init_with_gloo(self, context: ProcessContext) -> None:
        """Start Horovod with the controller gloo, at a rendezvous that worker 0 serves."""
        slots = _slots(context)
        mine = slots[context.rank]
        os.environ.update(
            HOROVOD_GLOO_RENDEZVOUS_ADDR=context.root_host,
            HOROVOD_GLOO_RENDEZVOUS_PORT=str(context.root_port),
            HOROVOD_HOSTNAME=mine.hostname,
            HOROVOD_RANK=str(mine.rank),
            HOROVOD_SIZE=str(mine.size),
            HOROVOD_LOCAL_RANK=str(mine.local_rank),
            HOROVOD_LOCAL_SIZE=str(mine.local_size),
            HOROVOD_CROSS_RANK=str(mine.cross_rank),
            HOROVOD_CROSS_SIZE=str(mine.cross_size),
        )
        if context.rank == 0:
            _serve(context, slots)
        else:
            _await(context)  # Horovod itself gives up after a second and a half
        self.hvd.init()

    def leave(self) -> None:
        """Leave Horovod, whose thread ends in all workers together."""
        self.hvd.shutdown()


def _slots(context: ProcessContext) -> List[Any]:
    """Return Horovod's own description of every worker, with its host and place there."""
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments

    hosts = [address.rsplit(":", 1)[0] for address in context.worker_addresses]
    return get_host_assignments(
        [HostInfo(host, hosts.count(host)) for host in sorted(set(hosts), key=hosts.index)], context.workers
    )


def _serve(context: ProcessContext, slots: List[Any]) -> None:
    """Listen at the root address as long as this process lives; Horovod's own launcher would take any free port."""
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((context.root_host, context.root_port), RendezvousHandler, 0)
    server.init(slots)
    forever = None  # without a limit, so that the thread does not wake up beside the training
    thread = threading.Thread(target=server.serve_forever, args=(forever,))
    thread.daemon = True
    thread.start()


def _await(context: ProcessContext) -> None:
    deadline = time.monotonic() + _RENDEZVOUS_LIMIT_S
    while not _answers(context):
        if time.monotonic() > deadline:
            raise RuntimeError(
                "worker 0 has not opened Horovod's rendezvous at %s within %d s"
                % (context.root_address, _RENDEZVOUS_LIMIT_S)
            )
        time.sleep(_POLL_S)


def _answers(context: ProcessContext) -> bool:
    try:
        socket.create_connection((context.root_host, context.root_port), timeout=1.0).close()
    except OSError:
        return False
    return True
