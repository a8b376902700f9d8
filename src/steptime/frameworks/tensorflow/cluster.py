"""The TensorFlow servers of workers and parameter servers, which do what the coordinator asks of them."""

import os

from steptime.worker.builders.tensorflow_cluster import call_directly

_LEAST_OPERATIONS = 2
"""With one thread for operations, the first call of a function from another process never returns."""


def cluster_of(place):
    """Return the addresses of all processes by job; the coordinator is TensorFlow's ``chief``."""
    return {"chief": [place.root_address], "ps": place.server_addresses, "worker": place.worker_addresses}


def start_server(tf, place, threads):
    """Start the TensorFlow server of a worker or a parameter server; it lives as long as the process.

    Args:
        tf: TensorFlow.
        place: of this process.
        threads: of one operation; None takes one per core that the process may run on.
    """
    call_directly(place.server_addresses + place.worker_addresses + [place.root_address])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    at_once = _LEAST_OPERATIONS if threads else max(_LEAST_OPERATIONS, cores)
    settings = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads or 0, inter_op_parallelism_threads=at_once, device_count={"GPU": 0}
    )
    job = "worker" if place.role == "worker" else "ps"
    tf.distribute.Server(cluster_of(place), job_name=job, task_index=place.rank, protocol="grpc", config=settings)
    return at_once
