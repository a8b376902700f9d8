"""The step times of one launch, from the step ends of its workers, and their mean with its standard error."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.catalog.choices import strategy_named
from steptime.results.records import Launch, WorkerSteps
from steptime.statistics.stalls import by_length, excess_s, periods_of
from steptime.statistics.warmup import find_steady_rows, inefficiencies

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


def step_times_of(launches: Sequence[Launch], strategy: str) -> list[NDArray[np.float64]]:
    """Return ``step_times`` of each of ``launches``; those of one worker are computed together."""
    alone: dict[int, list[int]] = {}
    found = [np.empty(0)] * len(launches)
    for index, launch in enumerate(launches):
        if len(launch.workers) == 1 and strategy_named(strategy).synchronous:
            alone.setdefault(len(launch.workers[0].ends_s), []).append(index)
        else:
            found[index] = step_times(launch, strategy)
    for indices in alone.values():
        workers = [launches[index].workers[0] for index in indices]
        rows = np.diff([[worker.origin_s, *worker.ends_s] for worker in workers], axis=1)
        for index, row in zip(indices, rows, strict=True):
            found[index] = row
    return found


def _synchronous(workers: Sequence[WorkerSteps]) -> NDArray[np.float64]:
    if len(workers) == 1:
        return np.diff([workers[0].origin_s, *workers[0].ends_s])
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


_PIECE = 256
"""Launches whose steps are read at once."""
_LONGEST = 8192
"""Correlations of a longer series are estimated from so many steps at its end."""
_PAUSE_S = 3600.0
"""Between two launches of different sessions, at least."""
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
    excess_s: NDArray[np.float64] | None = None
    """By how much each steady step is longer than usual ones; None if none is a stall."""
    site: tuple[str, ...] | None = None
    """The hosts that the run could use; None if the study names none."""
    started_at: str = ""
    """UTC, ISO 8601."""
    shared_import: str | None = None
    """Names the process that it was forked from; None if it imported its framework itself."""


def by_block(launches: Sequence[LaunchTimes]) -> dict[tuple[int, int], LaunchTimes]:
    """Return the launches of a trial by their block, and by how many it had in this block before."""
    found: dict[tuple[int, int], LaunchTimes] = {}
    for launch in launches:
        before = 0
        while (launch.block, before) in found:
            before += 1
        found[launch.block, before] = launch
    return found


def sessions_of(launches: Sequence[LaunchTimes], first_block: int = 0) -> list[LaunchTimes]:
    """Return a launch for each session: the step time of all launches between which no pause is longer than an hour.

    Args:
        launches: of one trial.
        first_block: the block of the first session; each of the others has the next.
    """
    ordered = sorted(launches, key=lambda each: each.started_at)
    begins = [0, *(index + 1 for index, pair in enumerate(pairwise(ordered)) if _pause_s(*pair) > _PAUSE_S)]
    parts = [ordered[begin:end] for begin, end in pairwise([*begins, len(ordered)])]
    return [
        replace(part[0], block=number, log_mean=float(np.mean([each.log_mean for each in part])))
        for number, part in enumerate(parts, first_block)
    ]


def _pause_s(earlier: LaunchTimes, later: LaunchTimes) -> float:
    """Return the seconds between two launches; 0 where a record does not have them."""
    try:
        return (datetime.fromisoformat(later.started_at) - datetime.fromisoformat(earlier.started_at)).total_seconds()
    except (TypeError, ValueError):
        return 0.0


def in_turns(trials: Mapping[str, Sequence[LaunchTimes]]) -> dict[str, list[LaunchTimes]]:
    """Return the launches of trials with blocks that hold launches of one time only.

    A block is over before the next begins, and holds a trial once. Where a launch began later than one of a higher
    block, or its trial was in the block already, as in records of two runs, or of a trial that was added to a study,
    another round of blocks has begun: the numbers of its blocks follow those of the rounds before.
    """
    timed = sorted(
        (
            (launch.started_at, launch.block, name, index)
            for name, own in trials.items()
            for index, launch in enumerate(own)
        )
    )
    found = {name: list(own) for name, own in trials.items()}
    last, offset = -1, 0
    members: set[str] = set()
    for _, block, name, index in timed:
        if block < last or (block == last and name in members):
            offset += last + 1
            last = -1
        if block > last:
            members.clear()
            last = block
        members.add(name)
        if offset:
            found[name][index] = replace(found[name][index], block=block + offset)
    return found


class Conditions(NamedTuple):
    """When and where a launch ran: see ``LaunchTimes``."""

    block: int
    site: tuple[str, ...] | None = None
    started_at: str = ""
    shared_import: str | None = None


def launch_times(launches: Iterable[Launch], strategy: str) -> list[LaunchTimes | None]:
    """Reduce each of ``launches``; None for one that failed or timed no step."""
    steps, conditions = [], []
    found: list[LaunchTimes | None] = []
    timed = []
    coming = iter(launches)
    while piece := list(islice(coming, _PIECE)):
        for launch, times in zip(piece, step_times_of(piece, strategy), strict=True):
            found.append(None)
            if is_timed(launch, times):
                timed.append(len(found) - 1)
                steps.append(times)
                site = tuple(launch.site) if launch.site is not None else None
                conditions.append(Conditions(launch.block, site, launch.started_at, launch.shared_import))
    for index, reduced in zip(timed, _reduced(steps, conditions), strict=True):
        found[index] = reduced
    return found


def is_timed(launch: Launch, times: NDArray[np.float64]) -> bool:
    """Whether the step ``times`` of ``launch`` count.

    Single steps may have no length on the clock: updates of asynchronous workers can coincide on it.
    """
    return launch.status == "ok" and len(times) > 0 and bool(times[-1] > 0.0 or times.sum() > 0.0)


def reduce_times(launches: Sequence[NDArray[np.float64]], blocks: Sequence[int] | None = None) -> list[LaunchTimes]:
    """Find the steady part of the steps of each launch and reduce it; no step is left out for its length.

    Where stalls come regularly, the steady part begins so late that it holds whole periods, since one stall more or
    less at its end would move the mean.

    Args:
        launches: the step times of each, in seconds.
        blocks: of each launch; one after the other by default.
    """
    return _reduced(launches, [*map(Conditions, range(len(launches)) if blocks is None else blocks)])


def _reduced(launches: Sequence[NDArray[np.float64]], conditions: Sequence[Conditions]) -> list[LaunchTimes]:
    parts = _steady_parts(launches)
    steady = [times[part.start :] for times, part in zip(launches, parts, strict=True)]
    errors = mean_errors([without_period(each, part.period) for each, part in zip(steady, parts, strict=True)])
    stalling = [index for index, part in enumerate(parts) if part.excess.any()]
    of_stalls = mean_errors([without_period(parts[index].excess, parts[index].period) for index in stalling])
    stall_errors = dict(zip(stalling, of_stalls, strict=True))
    means = np.zeros(len(launches))
    for indices, rows in by_length(steady):
        means[indices] = rows.mean(axis=1)
    logs = np.log(means).tolist()
    return [
        LaunchTimes(
            block=own.block,
            steady_s=steady[index],
            dropped=part.start,
            log_mean=logs[index],
            mean_error=errors[index] / mean,
            stall_error=stall_errors.get(index, 0.0) / mean,
            period=part.period,
            excess_s=part.excess if index in stall_errors else None,
            site=own.site,
            started_at=own.started_at,
            shared_import=own.shared_import,
        )
        for index, (part, own, mean) in enumerate(zip(parts, conditions, means.tolist(), strict=True))
    ]


@dataclass(frozen=True)
class _SteadyPart:
    start: int
    period: int | None
    """Of its stalls."""
    excess: NDArray[np.float64]
    """What they take longer, in seconds."""


def _steady_parts(launches: Sequence[NDArray[np.float64]]) -> list[_SteadyPart]:
    starts = [0] * len(launches)
    for indices, rows in by_length(launches):
        for index, row, found in zip(indices, rows, find_steady_rows(rows), strict=True):
            starts[index] = found.start if row[-1] > 0.0 or row[found.start :].sum() > 0.0 else 0
    steady = [times[start:] for times, start in zip(launches, starts, strict=True)]
    excesses = excess_s(steady)
    parts = []
    for times, start, excess, period in zip(launches, starts, excesses, periods_of(steady, excesses), strict=True):
        later = start if period is None else start + (len(times) - start) % period
        parts.append(_SteadyPart(later, period, excess if later == start else excess_s([times[later:]])[0]))
    return parts


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


def mean_errors(series: Sequence[NDArray[np.float64]]) -> list[float]:
    """Return the standard error of the mean of each series, whose neighbours hang together."""
    found = [0.0] * len(series)  # one step has no spread
    for indices, rows in by_length(series):
        size = rows.shape[1]
        if size > 1:
            tails = rows[:, -_LONGEST:]
            g = inefficiencies(tails - tails.mean(axis=1, keepdims=True))
            errors = rows.std(axis=1, ddof=1) * np.sqrt(np.minimum(g / size, 1.0))
            for index, error in zip(indices, errors.tolist(), strict=True):
                found[index] = error
    return found
