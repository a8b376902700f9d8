"""From the ends that each worker saw to the time of a message."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.interval import LEVEL, half_width_between
from steptime.measurements.net.records import NetLaunch

MessageTimes = dict[int, list[NDArray[np.float64]]]
"""Seconds of all runs by size in bytes; one array for each unit."""

QUANTILES = (0.1, 0.9)


@dataclass(frozen=True)
class SizeTime:
    """The time of one message of one size."""

    bytes: int
    median_s: float
    low_s: float | None
    high_s: float | None
    """Bounds of the interval; None with a single unit."""
    q10_s: float
    q90_s: float
    """Quantiles of single runs."""
    runs: int


def message_times(launches: Sequence[NetLaunch], operation: str) -> tuple[MessageTimes, str]:
    """Return the seconds of every run of ``operation`` and what the units are.

    The units, whose medians are independent draws, are the ``launches``; where there is only one, its ``rounds``,
    which lie apart in time, and know nothing of how launches differ.
    """
    good = [launch for launch in launches if launch.status == "ok"]
    times: MessageTimes = defaultdict(list)
    for launch in good:
        by_size: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
        for index, visit in enumerate(launch.workers[0].visits):
            if visit.operation == operation:
                by_size[visit.bytes].append(run_times(launch, index))
        for size, rounds in by_size.items():
            times[size] += rounds if len(good) == 1 else [np.concatenate(rounds)]
    return dict(sorted(times.items())), "launches" if len(good) > 1 else "rounds"


def run_times(launch: NetLaunch, visit: int) -> NDArray[np.float64]:
    """Return the seconds of each timed run: from the moment when the last worker ended the run before, to its own.

    As in ``measurements/launch_times.py``, the clocks of two hosts have nothing in common but that workers pass
    each run together: the median distance of their ends is taken for that of their clocks.
    """
    last = {}
    for host in dict.fromkeys(worker.host for worker in launch.workers):
        ends = [worker.visits[visit].ends_s for worker in launch.workers if worker.host == host]
        last[host] = np.asarray(ends, dtype=np.float64).max(axis=0)
    first, *others = last.values()
    aligned = [first, *(ends - np.median(ends - first) for ends in others)]
    times: NDArray[np.float64] = np.maximum(np.diff(np.max(aligned, axis=0)), 1e-9)
    return times


def size_time(size: int, units: Sequence[NDArray[np.float64]], level: float = LEVEL) -> SizeTime:
    """Return the time of one size: exp(mean of the logarithms of the units' medians) ± t(n - 1) sd / sqrt(n)."""
    centres = np.log([np.median(times) for times in units])
    every = np.concatenate(units)
    half_width = float(half_width_between(centres, level)) if len(centres) > 1 else None
    low, high = np.quantile(every, QUANTILES)
    centre = float(centres.mean())
    return SizeTime(
        bytes=size,
        median_s=float(np.exp(centre)),
        low_s=None if half_width is None else float(np.exp(centre - half_width)),
        high_s=None if half_width is None else float(np.exp(centre + half_width)),
        q10_s=float(low),
        q90_s=float(high),
        runs=len(every),
    )
