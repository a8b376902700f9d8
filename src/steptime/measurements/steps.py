"""From the ends that each worker saw to the step times of the whole launch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.records import Launch, WorkerSteps

ASYNCHRONOUS = frozenset({"ps_async"})
"""Strategies whose workers do not wait for each other."""

_MIN_UPDATES = 2


def step_times(launch: Launch, strategy: str) -> NDArray[np.float64]:
    """Return the seconds of each timed step of ``launch``; empty when it has none.

    A step takes from the moment when the last worker ended the step before to the moment when the last worker ended
    this one. For a strategy in ``ASYNCHRONOUS`` there is no common step: there it is the time in which all p workers
    together made p updates, so that p workers times the batch is what was learned from in either case.
    """
    if not launch.workers or any(not worker.ends_s for worker in launch.workers):
        return np.empty(0)
    if strategy in ASYNCHRONOUS:
        return _asynchronous(launch.workers)
    return _synchronous(launch.workers)


def _synchronous(workers: Sequence[WorkerSteps]) -> NDArray[np.float64]:
    steps = min(len(worker.ends_s) for worker in workers)
    last = {}
    for host in dict.fromkeys(worker.host for worker in workers):
        ends = [(worker.origin_s, *worker.ends_s[:steps]) for worker in workers if worker.host == host]
        last[host] = np.asarray(ends, dtype=np.float64).max(axis=0)
    first, *others = last.values()
    # The clocks of two hosts have nothing in common. Synchronous workers pass each step together, so the median
    # distance of their ends is the distance of their clocks; what is lost is a lasting lead of one host, which
    # cannot be told from a clock that is set differently and does not change the length of a step.
    aligned = [first, *(ends - np.median(ends - first) for ends in others)]
    return np.diff(np.max(aligned, axis=0))


def _asynchronous(workers: Sequence[WorkerSteps]) -> NDArray[np.float64]:
    starts = _common_origins(workers)
    ends = [np.asarray(worker.ends_s) - worker.origin_s + start for worker, start in zip(workers, starts, strict=True)]
    merged = np.sort(np.concatenate(ends))
    # Only while all are at work: before, and after the first has ended, the others have the machine to themselves.
    begin, end = max(starts), min(each[-1] for each in ends)
    updates = merged[(merged > begin) & (merged <= end)]
    if len(updates) < _MIN_UPDATES * len(workers):
        begin, updates = min(starts), merged
    marks = np.concatenate([[begin], updates[len(workers) - 1 :: len(workers)]])
    return np.diff(marks)


def _common_origins(workers: Sequence[WorkerSteps]) -> list[float]:
    """Origins on one clock: hosts are taken to have started together, because nothing else joins their clocks."""
    earliest: dict[str, float] = {}
    for worker in workers:
        earliest[worker.host] = min(worker.origin_s, earliest.get(worker.host, worker.origin_s))
    return [worker.origin_s - earliest[worker.host] for worker in workers]
