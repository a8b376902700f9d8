"""The processes of ParameterServerStrategy: their TensorFlow servers, and their connections to the coordinator.

Workers and servers send the coordinator lines of JSON. It listens on a free port of its own and writes the address
into the run folder, which all processes of a launch share.
"""

import json
import os

from steptime.libraries.tensorflow.startup import call_directly
from steptime.worker.handshake import accept_peers, announce_address, connect_peer, open_listener, read_address

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
        threads: of one operation, as many in servers as in workers.

    Returns:
        How many operations may run at once.
    """
    call_directly(context.server_addresses + context.worker_addresses + [context.root_address])
    settings = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=_LEAST_OPERATIONS,
        device_count={"GPU": 0},
    )
    job = "worker" if context.role == "worker" else "ps"
    tf.distribute.Server(cluster_of(context), job_name=job, task_index=context.rank, protocol="grpc", config=settings)
    return _LEAST_OPERATIONS


_MEETING_LIMIT_S = 300.0
_FILE = "coordinator.json"
STAGE = "stage "
"""Before the name of a stage, in what a worker asks for."""
SET_RATE, EVALUATE, SAVE_STATE, SET_STATE = "set_rate", "evaluate", "save_state", "set_state"
"""What a worker asks for as a list with an argument: a learning rate, or the path of a file of arrays."""
LEAVE = "leave"
"""The last that a worker asks for."""


class PeerConnection(object):
    """One connection; messages are anything that JSON can say, and None is what the dead say."""

    def __init__(self, connection):
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


def accept_callers(context):
    """Return the connections to all workers and servers by their names; the workers are in the order of their ranks.

    Raises RuntimeError when one of them does not call.
    """
    listener = open_listener(context.root_host)
    announce_address(listener, os.path.join(context.folder, _FILE))
    names = ["worker-%d" % rank for rank in range(context.workers)]
    names += ["server-%d" % rank for rank in range(context.servers)]
    found = accept_peers(listener, context.secret, names, _MEETING_LIMIT_S)
    return {name: PeerConnection(found[name]) for name in names}


def call(context):
    """Return this process's connection to the coordinator.

    Raises RuntimeError when there is no coordinator to be found.
    """
    path = os.path.join(context.folder, _FILE)
    connection = connect_peer(lambda: read_address(path), context.secret, context.name, _MEETING_LIMIT_S)
    return PeerConnection(connection)
