"""The processes of ``ps_async`` that are no workers: parameter servers, and the coordinator."""

from steptime.frameworks.tensorflow.cluster import start_server
from steptime.frameworks.tensorflow.talking import call


def be_server(tf, place):
    """Hold weights until the coordinator has gone; TensorFlow's own ``join`` would never return."""
    start_server(tf, place, None)
    call(place).hear()


def be_coordinator(job, place):
    """Send all workers their steps until they have left."""
    from steptime.frameworks.tensorflow.coordinating import Coordinator

    Coordinator(job, place).coordinate()
