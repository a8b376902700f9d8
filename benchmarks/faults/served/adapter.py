"""A worker sends bytes to each server and gets as many back, once per step; a server waits for all workers."""

import os
import socket
import time

from steptime.worker.framework import Framework
from steptime.worker.session import Session

_PAYLOAD = b"g" * 16384
_CONNECT_S = 30.0


def open_session(job, context):
    return _ServedSession(job, context)


def serve(job, context):
    """Answer every worker once all have sent, until one closes its connection."""
    host, port = context.server_addresses[context.rank].rsplit(":", 1)
    with socket.create_server((host, int(port))) as listener:
        workers = [listener.accept()[0] for _ in range(context.workers)]
    while all(_received(each) for each in workers):
        for each in workers:
            each.sendall(_PAYLOAD)


def _received(connection):
    """Return whether a whole payload has come; a closed connection ends it."""
    missing = len(_PAYLOAD)
    while missing:
        data = connection.recv(missing)
        if not data:
            return False
        missing -= len(data)
    return True


class _ServedSession(Session):
    def __init__(self, job, context):
        self._servers = [_connected(address) for address in context.server_addresses]
        self._shape = [job["batch_per_worker"]] + job["workload"]["layers"][-1]["output_shape"]

    def step(self):
        for each in self._servers:
            each.sendall(_PAYLOAD)
        if not all(_received(each) for each in self._servers):
            raise RuntimeError("a server has closed its connection")

    def wait(self):
        """Return at once: an exchange is over when a step returns."""

    def loss(self):
        return 1.0

    def parameter_count(self):
        return 0

    def output_shape(self):
        return self._shape

    def get_weights(self):
        return None

    def facts(self):
        return {"framework_version": "1", "pid": os.getpid()}

    def close(self):
        for each in self._servers:
            each.close()


def _connected(address):
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            connection = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
            connection.settimeout(None)
            return connection
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


FRAMEWORK = Framework(open_session, serve=serve)
