"""How much of the communication computation covers."""

import numpy as np

from steptime.measurements.anatomy.records import AnatomyLaunch, WorkerAnatomy
from steptime.measurements.anatomy.rungs import Array, Climb


def communication_s(launch: AnatomyLaunch, climb: Climb) -> tuple[Array, str] | None:
    """Return how long a step communicates in all, covered or not, and how that is known; None where it is not.

    Seconds of every block (one value where the framework's transfers give it).
    From the framework's own transfers, the time in which any piece was under way; else from the rung that exchanges
    and computes nothing.
    """
    seen = [worker for worker in launch.workers if worker.transfers and worker.marked]
    if seen and len(seen) == len(launch.workers):
        return np.array([np.mean([_under_way(worker) / len(worker.marked) for worker in seen])]), "direct"
    if "communication" in climb.rungs:
        return climb.means("communication"), "derived"
    return None


def _under_way(worker: WorkerAnatomy) -> float:
    """Seconds in which at least one piece was ready and not yet back."""
    total, until = 0.0, float("-inf")
    for _, _, ready, done in sorted(worker.transfers, key=lambda piece: piece[2]):
        total += max(0.0, done - max(ready, until))
        until = max(until, done)
    return total
