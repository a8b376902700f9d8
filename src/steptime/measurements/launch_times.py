"""The step times of one launch, from the step ends of its workers, and their median, mean and standard errors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.records import Launch, WorkerSteps
from steptime.measurements.warmup import find_steady, inefficiencies
from steptime.study.strategies import strategy_named

_MIN_UPDATES = 2


def step_times(launch: Launch, strategy: str) -> NDArray[np.float64]:
    """Return the seconds of each timed step of ``launch``; empty when it has none.

    A step takes from the moment when the last worker ended the step before to the moment when the last worker ended
    this one. An asynchronous strategy has no common step: there it is the time in which all p workers
    together made p updates, so that p workers times the batch is what was learned from in either case.
    """
    if not launch.workers or any(not worker.ends_s for worker in launch.workers):
        return np.empty(0)
    if strategy_named(strategy).synchronous:
        return _synchronous(launch.workers)
    return _asynchronous(launch.workers)


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


Statistic = Literal["median", "mean"]

_LONGEST = 8192
"""Correlations of a longer series are estimated from so many steps at its end."""


@dataclass(frozen=True)
class LaunchTimes:
    """The steady step times of one launch, in seconds, and what follows from them."""

    block: int
    """Launches of the same block ran one after the other, before those of the next block."""
    steady_s: NDArray[np.float64]
    dropped: int
    """Steps before the steady part."""
    effective: float
    """How many independent steps the steady ones are worth."""
    log_median: float
    log_mean: float
    median_error: float
    """Standard error of ``log_median`` as the launch alone shows it."""
    mean_error: float
    """Likewise of ``log_mean``."""
    site: tuple[str, ...] | None = None
    """The hosts that the run could use; None where the study names none."""

    def log_location(self, statistic: Statistic) -> float:
        """The logarithm of the median or of the mean."""
        return self.log_median if statistic == "median" else self.log_mean

    def log_error(self, statistic: Statistic) -> float:
        """Its standard error within the launch."""
        return self.median_error if statistic == "median" else self.mean_error


def launch_times(launch: Launch, strategy: str) -> LaunchTimes | None:
    """Reduce ``launch``; None when it failed or timed no step."""
    times = step_times(launch, strategy) if launch.status == "ok" else np.empty(0)
    # Successive ends of all workers of an asynchronous strategy can coincide on the clock.
    times = times[times > 0.0]
    if not len(times):
        return None
    return replace(reduce_times(times, launch.block), site=tuple(launch.site) if launch.site is not None else None)


def reduce_times(times: NDArray[np.float64], block: int) -> LaunchTimes:
    """Find the steady part of positive step ``times`` and reduce it."""
    found = find_steady(times)
    steady = times[found.start :]
    mean = float(steady.mean())
    spread = float(steady.std(ddof=1)) if len(steady) > 1 else 0.0
    median, error = _median(steady)
    return LaunchTimes(
        block=block,
        steady_s=steady,
        dropped=found.start,
        effective=found.effective,
        log_median=float(np.log(median)),
        log_mean=float(np.log(mean)),
        median_error=error,
        mean_error=spread / mean / float(np.sqrt(found.effective)),
    )


def _median(steady: NDArray[np.float64]) -> tuple[float, float]:
    """The median and the standard error of its logarithm.

    The number of steps below the true median has a standard deviation of sqrt(n g) / 2, where g belongs to the
    series "above or below"; so the steps at those ranks around the median are one standard error away from it.
    """
    size = len(steady)
    ordered = np.sort(steady)
    median = float(ordered[size // 2]) if size % 2 else float(ordered[size // 2 - 1 : size // 2 + 1].mean())
    tail = steady[-_LONGEST:]
    g = float(inefficiencies((tail > median).astype(np.float64)[None, :])[0])
    half_width = 0.5 * np.sqrt(size * g)
    low = ordered[int(np.clip(np.floor(size / 2 - half_width), 0, size - 1))]
    high = ordered[int(np.clip(np.ceil(size / 2 + half_width), 0, size - 1))]
    return median, 0.5 * float(np.log(high / low))
