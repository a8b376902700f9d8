"""How much of the communication computation covers."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from steptime.measurements.ablation.records import AblationLaunch, WorkerAblation
from steptime.measurements.ablation.stages import Array, StageTimes, aligned

Pieces = list[tuple[float, float]]
"""When each piece could be under way, and when its result was there."""


def communication_s(launch: AblationLaunch, stage_times: StageTimes, *, synchronous: bool) -> tuple[Array, str] | None:
    """Return how long a step communicates in all, covered or not, and how that is known; None if it is not.

    Seconds of every block (one value where the framework's transfers give it).
    From the framework's own transfers, the time in which any piece was under way; else from the stage that exchanges
    and computes nothing.

    Args:
        launch: an ablation launch.
        stage_times: the same as arrays.
        synchronous: whether a piece waits for the last worker to have it ready, which is no communication.
    """
    seen = [worker for worker in launch.workers if worker.transfers and worker.marked]
    if seen and len(seen) == len(launch.workers):
        latest = _latest(seen) if synchronous else {}
        busy = [_under_way(_pieces(worker, latest)) / len(worker.marked) for worker in seen]
        return np.array([np.mean(busy)]), "direct"
    if "communication" in stage_times.stages:
        return stage_times.means("communication"), "derived"
    return None


def _times(worker: WorkerAblation) -> dict[tuple[str, int], tuple[float, float]]:
    """When each piece was ready and back, on worker 0's clock, by its name and how often that had come before."""
    times = aligned(worker, [(ready, done) for _, _, ready, done in worker.transfers])
    seen: dict[str, int] = defaultdict(int)
    found = {}
    for (name, *_), (ready, done) in zip(worker.transfers, times, strict=True):
        found[name, seen[name]] = (float(ready), float(done))
        seen[name] += 1
    return found


def _latest(workers: Sequence[WorkerAblation]) -> dict[tuple[str, int], float]:
    """When the last worker had each piece ready; nothing where workers do not name the same pieces."""
    found = [_times(worker) for worker in workers]
    if any(each.keys() != found[0].keys() for each in found):
        return {}
    return {key: max(each[key][0] for each in found) for key in found[0]}


def _pieces(worker: WorkerAblation, latest: dict[tuple[str, int], float]) -> Pieces:
    return [(min(max(ready, latest.get(key, ready)), done), done) for key, (ready, done) in _times(worker).items()]


def _under_way(pieces: Pieces) -> float:
    """Seconds in which at least one piece was ready and not yet back."""
    total, until = 0.0, float("-inf")
    for ready, done in sorted(pieces):
        total += max(0.0, done - max(ready, until))
        until = max(until, done)
    return total
