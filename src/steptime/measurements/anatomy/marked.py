"""Phases as the framework itself marks their ends."""

import numpy as np

from steptime.measurements.anatomy.clocks import aligned, uncertainty_s
from steptime.measurements.anatomy.records import AnatomyLaunch

PHASE_OF_MARK = {"input": "input_wait", "h2d": "h2d", "forward": "forward", "backward": "backward", "update": "update"}
"""Marks that end a phase of their own; ``exchange`` ends two, which arrivals tell apart."""


def marked_phases(launch: AnatomyLaunch, *, synchronous: bool) -> dict[str, float]:
    """Return the phases of one launch in seconds, as means over workers and marked steps; empty without marks.

    A phase lasts from the end of the one before to its own. Of a synchronous exchange, what passes until the last
    worker has all its gradients is `sync_wait`, and the rest is `comm_exposed`; where the clocks of hosts cannot
    tell arrivals apart, neither is given.
    """
    workers = [worker for worker in launch.workers if worker.marked]
    if not workers or len(workers) < len(launch.workers):
        return {}
    ends = np.stack([aligned(worker, worker.marked) for worker in workers])  # workers x steps x (start, marks)
    gaps = np.diff(ends, axis=-1)
    marks = workers[0].marks
    phases = {
        PHASE_OF_MARK[mark]: float(gaps[..., index].mean()) for index, mark in enumerate(marks) if mark in PHASE_OF_MARK
    }
    if "exchange" not in marks:
        return phases
    exchange = float(gaps[..., marks.index("exchange")].mean())
    if len(workers) == 1 or not synchronous:
        return {**phases, "sync_wait": 0.0, "comm_exposed": exchange}
    arrivals = ends[..., marks.index("exchange")]
    wait = float((arrivals.max(axis=0) - arrivals.mean(axis=0)).mean())
    if wait < uncertainty_s(workers):
        return phases
    return {**phases, "sync_wait": wait, "comm_exposed": exchange - wait}
