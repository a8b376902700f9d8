"""What asynchronous updates gain and cost: progress of the loss per second, and how stale updates were."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import Any

import numpy as np

from steptime.results.json_form import Interval
from steptime.results.records import Launch
from steptime.statistics.interval import LEVEL, half_width_between


@dataclass(frozen=True)
class StalenessCounts:
    """How many updates of other workers came between the pull of weights and the update made from them."""

    mean: float
    low: float | None
    high: float | None
    """Bounds over launches; None for a single one."""
    counts: dict[int, int]
    """Updates by their staleness, over all workers and launches."""

    def quantile(self, share: float) -> int:
        """Return the least staleness that at least ``share`` of all updates did not exceed."""
        values = sorted(self.counts)
        reached = np.cumsum([self.counts[value] for value in values])
        return values[int(np.searchsorted(reached, share * reached[-1]))]


def loss_rate(launches: Sequence[Launch]) -> Interval | None:
    """Return by how much the loss sank per second over ``launches``; None when no launch has losses and steps.

    Of each launch: the mean over workers of the loss after the warm-up, less that of the last step, divided by the
    seconds between. It may be negative: updates that are fast and stale can undo each other. The loss is that of one
    batch per worker, so it scatters; the interval over launches shows how much.
    """
    rates = [rate for rate in map(_rate, launches) if rate is not None]
    if not rates:
        return None
    low, high = _bounds(rates)
    return Interval(float(np.mean(rates)), low, high)


def staleness(launches: Sequence[Launch]) -> StalenessCounts | None:
    """Return how stale the updates of ``launches`` were; None when no worker recorded any."""
    means, counts = [], Counter[int]()
    for launch in launches:
        own = _counts(launch)
        if own:
            counts.update(own)
            means.append(sum(late * count for late, count in own.items()) / own.total())
    if not means:
        return None
    low, high = _bounds(means)
    low = None if low is None else max(0.0, low)  # an update cannot come before its own pull
    mean = sum(late * count for late, count in counts.items()) / counts.total()
    return StalenessCounts(mean, low, high, dict(sorted(counts.items())))


def reached_shares(updates: Mapping[str, int]) -> Iterator[tuple[int, float]]:
    """Yield each staleness of ``updates``, numbers of updates by staleness, with the share that it and less reached."""
    reached, total = 0, sum(updates.values())
    for late, count in updates.items():
        reached += count
        yield int(late), reached / total


def to_json(found: StalenessCounts | None) -> dict[str, Any] | None:
    """Return the ``staleness`` of a trial in a report."""
    if found is None:
        return None
    return {
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "median": found.quantile(0.5),
        "p95": found.quantile(0.95),
        "max": max(found.counts),
        "updates": {str(late): count for late, count in found.counts.items()},
    }


def _rate(launch: Launch) -> float | None:
    timed = [worker for worker in launch.workers if worker.ends_s]
    if not timed:
        return None
    falls = [
        worker.loss_first - worker.loss_last
        for worker in timed
        if worker.loss_first is not None and worker.loss_last is not None
    ]
    if len(falls) < len(timed):
        return None
    fallen = fmean(falls)
    seconds = fmean(worker.ends_s[-1] - worker.origin_s for worker in timed)
    return fallen / seconds if seconds > 0.0 and isfinite(fallen) else None


def _counts(launch: Launch) -> Counter[int]:
    counts = Counter[int]()
    for worker in launch.workers:
        if worker.staleness:
            counts.update({int(late): count for late, count in worker.staleness.items()})
    return +counts  # without those that never came


def _bounds(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's t over launches, which are independent."""
    if len(values) < 2:  # noqa: PLR2004 - one launch has no spread
        return None, None
    mean, half_width = float(np.mean(values)), float(half_width_between(np.asarray(values), LEVEL))
    return mean - half_width, mean + half_width
