"""Times of all workers on worker 0's clock."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.anatomy.records import WorkerAnatomy

Array = NDArray[np.float64]


def aligned(worker: WorkerAnatomy, times_s: Sequence[Sequence[float]] | Array) -> Array:
    """Return times of a worker's clock as times of worker 0's.

    The offset was taken before and after (Cristian's method: half the quickest round trip bounds its error); between
    them it is interpolated, which takes a constant drift out.
    """
    times = np.asarray(times_s, dtype=np.float64)
    before, after = worker.clocks[0], worker.clocks[-1]
    span = after["at_s"] - before["at_s"]
    drift = (after["offset_s"] - before["offset_s"]) / span if span > 0.0 else 0.0
    return times + before["offset_s"] + drift * (times - before["at_s"])


def uncertainty_s(workers: Sequence[WorkerAnatomy]) -> float:
    """Return how far two workers' aligned clocks may be apart; no difference of arrivals below it means anything."""
    if len({worker.host for worker in workers}) == 1:
        return 0.0  # one host has one monotonic clock
    return max(clock["rtt_s"] for worker in workers for clock in worker.clocks)
