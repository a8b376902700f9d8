"""The store in which torch's processes find each other, out of reach of other interfaces than the launch's own.

Torch's own server of a store listens on every address of its host, and answers whoever calls.
"""

import os
import socket
from datetime import timedelta
from typing import Any, Iterator, Tuple
from urllib.parse import parse_qs, quote, urlsplit

from torch import distributed

from steptime.worker.process_context import ProcessContext

_SCHEME = "steptime"
_LIMIT = timedelta(seconds=1800)
"""Torch's own, where it names none."""
_CALLERS = 1024
"""That may wait for the server at once."""


def rendezvous_url(device: Any, context: ProcessContext) -> str:
    """Return where the workers find each other.

    On one host without CUDA devices that is a file of the run folder, else a server of worker 0 at the root address.
    """
    path = os.path.join(context.folder, "torch-store-%d" % context.root_port)
    if context.interface == "lo" and device.backend == "gloo" and quote(path) == path:
        return "file://" + path
    return server_url(context)


def server_url(context: ProcessContext) -> str:
    """Return the ``init_method`` by which the first process serves a store at the root address, and others call it."""
    return "%s://%s" % (_SCHEME, context.root_address)


def _open_store(url: str, timeout: Any = _LIMIT, **_: Any) -> Iterator[Tuple[Any, int, int]]:
    """Yield the store at ``url``, the rank and the number of processes: torch's form of a rendezvous."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    rank, processes = int(asked["rank"][0]), int(asked["world_size"][0])
    own = {} if rank else {"is_master": True, "master_listen_fd": _listener(parts.hostname, parts.port).detach()}
    yield distributed.TCPStore(parts.hostname, parts.port, processes, timeout=timeout, **own), rank, processes
    raise RuntimeError("processes that met at %s cannot meet there a second time" % url)


def _listener(host: Any, port: Any) -> socket.socket:
    """Return a socket that listens on one address; raises OSError where the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(_CALLERS)
    return listener


if distributed.is_available():
    distributed.register_rendezvous_handler(_SCHEME, _open_store)
