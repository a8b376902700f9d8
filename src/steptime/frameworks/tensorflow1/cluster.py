"""The processes of a launch as a TensorFlow cluster, and how they begin and end together."""

import contextlib
import threading
import time

from steptime.frameworks.tensorflow1.network import session_settings
from steptime.libraries.tensorflow.startup import call_directly

_ANSWER_LIMIT_S = 2.0
_LINGER_S = 0.5


def cluster_of(context):
    """Return the addresses of all processes by job."""
    return {"ps": context.server_addresses, "worker": context.worker_addresses}


def worker_device(rank):
    """Return TensorFlow's name for the worker ``rank``."""
    return "/job:worker/task:%d" % rank


def server_device(rank):
    """Return TensorFlow's name for the server ``rank``."""
    return "/job:ps/task:%d" % rank


def start_worker_server(tf1, context, job):
    """Start this worker's TensorFlow server and return ``(target, settings)`` for its session.

    The session sees the servers and this worker only: it would else wait for the other workers when it opens, and
    hang when one of them has left.
    """
    call_directly(context.server_addresses + context.worker_addresses)
    settings = session_settings(tf1, job["threads"], ["/job:ps", worker_device(context.rank)])
    server = tf1.train.Server(cluster_of(context), job_name="worker", task_index=context.rank, config=settings)
    return server.target, settings


def queue_on(tf1, server, name):
    """Return the queue ``name`` that lives on a server, the same in whichever process it is asked for."""
    with tf1.device(server_device(server)):
        return tf1.FIFOQueue(-1, [tf1.int32], shapes=[()], shared_name=name)


def leave_operation(tf1, context):
    """Return the operation by which a worker lets the servers go."""
    return tf1.group(*[queue_on(tf1, server, "farewell").enqueue(1) for server in range(context.servers)])


def run_leave_operation(tf1, session, operation):
    """Run the operation of ``farewells``, but do not insist on an answer.

    A server that has heard every worker is free to go, and may be gone before it has answered; TensorFlow would wait
    for it without end.
    """

    def speak():
        with contextlib.suppress(tf1.errors.OpError):
            session.run(operation)

    speaking = threading.Thread(target=speak)
    speaking.daemon = True
    speaking.start()
    speaking.join(_ANSWER_LIMIT_S)


def serve_until_all_left(tf1, job, context):
    """Be a server until every worker has said farewell; ``Server.join`` would never return.

    Returns how many threads an operation of the server has, and how many operations run at once: as in a worker.
    """
    call_directly(context.server_addresses + context.worker_addresses)
    settings = session_settings(tf1, job["threads"])
    server = tf1.train.Server(cluster_of(context), job_name="ps", task_index=context.rank, config=settings)
    left = queue_on(tf1, context.rank, "farewell").dequeue_many(context.workers)
    own = tf1.ConfigProto(device_filters=[server_device(context.rank)])
    tf1.Session(server.target, config=own).run(left)
    time.sleep(_LINGER_S)  # the last worker still waits for its answer
    return {
        "threads": settings.intra_op_parallelism_threads,
        "operations_at_once": settings.inter_op_parallelism_threads,
    }
