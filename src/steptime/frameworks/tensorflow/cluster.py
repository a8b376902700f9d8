"""The processes of ParameterServerStrategy: their TensorFlow servers, and their connections to the coordinator.

Workers and servers send the coordinator lines of JSON. It listens on a free port of its own and writes the address
into the run folder, which all processes of a launch share.
"""

import json
import os
import socket
import time

from steptime.libraries.tensorflow.startup import call_directly

_LEAST_OPERATIONS = 2
"""With one thread for operations, the first call of a function from another process never returns."""


def cluster_of(context):
    """Return the addresses of all processes by job; the coordinator is TensorFlow's ``chief``."""
    return {"chief": [context.root_address], "ps": context.server_addresses, "worker": context.worker_addresses}


def start_server(tf, context, threads):
    """Start the TensorFlow server of a worker or a parameter server; it lives as long as the process.

    Args:
        tf: TensorFlow.
        context: of this process.
        threads: of one operation; None takes one per core that the process may run on.
    """
    call_directly(context.server_addresses + context.worker_addresses + [context.root_address])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    at_once = _LEAST_OPERATIONS if threads else max(_LEAST_OPERATIONS, cores)
    settings = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads or 0, inter_op_parallelism_threads=at_once, device_count={"GPU": 0}
    )
    job = "worker" if context.role == "worker" else "ps"
    tf.distribute.Server(cluster_of(context), job_name=job, task_index=context.rank, protocol="grpc", config=settings)
    return at_once


_POLL_S = 0.05
_MEETING_LIMIT_S = 300.0
_FILE = "coordinator.json"
STAGE = "stage "
"""Before the name of a stage, in what a worker asks for."""


class CoordinatorConnection(object):
    """One connection; messages are anything that JSON can say, and None is what the dead say."""

    def __init__(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._incoming = connection.makefile("r", encoding="utf-8")

    def send(self, message):
        """Send one message; raises OSError when the other has gone."""
        self._connection.sendall((json.dumps(message) + "\n").encode("utf-8"))

    def receive(self):
        """Wait for the next message and return it; None when the other has gone."""
        try:
            line = self._incoming.readline()
        except OSError:
            return None
        return json.loads(line) if line else None


def listen(context):
    """Return a socket to accept connections on, once its address can be found."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind((context.root_host, 0))
    listening.listen(context.workers + context.servers)
    path = os.path.join(context.folder, _FILE)
    with open(path + ".partial", "w") as file:
        json.dump({"host": context.root_host, "port": listening.getsockname()[1]}, file)
    os.rename(path + ".partial", path)
    return listening


def call(context):
    """Return a ``Line`` to the coordinator, after having said who calls.

    Raises RuntimeError when there is no coordinator to be found.
    """
    path = os.path.join(context.folder, _FILE)
    deadline = time.monotonic() + _MEETING_LIMIT_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise RuntimeError("the coordinator has not said in %s where it listens" % path)
        time.sleep(_POLL_S)
    with open(path) as file:
        address = json.load(file)
    line = CoordinatorConnection(socket.create_connection((address["host"], address["port"])))
    line.send({"role": context.role, "rank": context.rank})
    return line
