"""The step times of one launch, from the step ends of its workers, and their mean with its standard error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.catalog.strategies import strategy_named
from steptime.measurements.records import Launch, WorkerSteps
from steptime.measurements.stalls import excess_s, period_of
from steptime.measurements.warmup import find_steady, inefficiencies

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


_LONGEST = 8192
"""Correlations of a longer series are estimated from so many steps at its end."""
_FEWEST_PERIODS = 4
"""Fewer periods of stalls than this show nothing of how periods differ."""


@dataclass(frozen=True)
class LaunchTimes:
    """The steady step times of one launch, in seconds, and what follows from them."""

    block: int
    """Launches of the same block ran one after the other, before those of the next block."""
    steady_s: NDArray[np.float64]
    dropped: int
    """Steps before the steady part."""
    log_mean: float
    """The logarithm of the launch's step time: the seconds of all steady steps over their number."""
    mean_error: float
    """Standard error of ``log_mean`` as the launch alone shows it."""
    stall_error: float = 0.0
    """The part of ``mean_error`` that comes from irregular stalls."""
    period: int | None = None
    """Steps from one stall to the next, where they come regularly."""
    site: tuple[str, ...] | None = None
    """The hosts that the run could use; None if the study names none."""


def launch_times(launch: Launch, strategy: str) -> LaunchTimes | None:
    """Reduce ``launch``; None when it failed or timed no step."""
    times = step_times(launch, strategy)
    if not is_timed(launch, times):
        return None
    return replace(reduce_times(times, launch.block), site=tuple(launch.site) if launch.site is not None else None)


def is_timed(launch: Launch, times: NDArray[np.float64]) -> bool:
    """Whether the step ``times`` of ``launch`` count.

    Single steps may have no length on the clock: updates of asynchronous workers can coincide on it.
    """
    return launch.status == "ok" and bool(times.sum() > 0.0)


def reduce_times(times: NDArray[np.float64], block: int) -> LaunchTimes:
    """Find the steady part of step ``times`` and reduce it; no step is left out for its length.

    Where stalls come regularly, the steady part begins so late that it holds whole periods, since one stall more or
    less at its end would move the mean.
    """
    start, period, excess = _steady_part(times)
    steady = times[start:]
    mean = float(steady.mean())
    return LaunchTimes(
        block=block,
        steady_s=steady,
        dropped=start,
        log_mean=float(np.log(mean)),
        mean_error=_error(without_period(steady, period)) / mean,
        stall_error=_error(without_period(excess, period)) / mean if np.any(excess) else 0.0,
        period=period,
    )


def first_steady_step(times: NDArray[np.float64]) -> int:
    """Return the index in the step ``times`` of a launch with which its steady part begins."""
    return _steady_part(times)[0]


def _steady_part(times: NDArray[np.float64]) -> tuple[int, int | None, NDArray[np.float64]]:
    """Return where the steady part begins, the period of its stalls, and what they take longer, in seconds."""
    start = find_steady(times).start
    if times[start:].sum() <= 0.0:
        start = 0
    excess = excess_s(times[start:])
    period = period_of([times[start:]], [excess])
    if period is None:
        return start, None, excess
    start += (len(times) - start) % period
    return start, period, excess_s(times[start:])


def without_period(series: NDArray[np.float64], period: int | None) -> NDArray[np.float64]:
    """Return ``series`` without what comes again every ``period`` steps, as widely spread as before but for that.

    Stalls that come every fourth step say nothing of how far the mean may be off: as many of them are in any other
    hundred steps. Left in, they would count as chance. What all steps of one phase of the period have in common is
    taken from them; the rest is scaled for the phases that were estimated.
    """
    size = len(series)
    if period is None or size < _FEWEST_PERIODS * period:
        return series
    phases = np.arange(size) % period
    common = np.bincount(phases, weights=series) / np.bincount(phases)
    without: NDArray[np.float64] = series.mean() + (series - common[phases]) * np.sqrt(size / (size - period))
    return without


def _error(series: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of ``series``, whose neighbours hang together."""
    if len(series) < 2:  # noqa: PLR2004 - one step has no spread
        return 0.0
    tail = series[-_LONGEST:]
    g = float(inefficiencies((tail - tail.mean())[None, :])[0])
    return float(series.std(ddof=1)) * float(np.sqrt(min(g / len(series), 1.0)))
