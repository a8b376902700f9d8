"""From the ends that each worker saw to the time of a message.

What the network benchmark found, as ``steptime net --json`` and ``steptime report --json`` (key ``net``) print it.

docs/net.md describes each key.

Schema diary (``SCHEMA`` grows by one whenever a key changes its meaning):

1. First version.

The straight line through times against sizes: a start, and seconds per byte.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import ArrayLike, NDArray

from steptime.results.json_form import NOT_MEASURED, Interval, JsonForm
from steptime.results.net_records import NetLaunch
from steptime.statistics.interval import LEVEL, from_log, half_width_between

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

    As in ``statistics/launch_times.py``, the clocks of two hosts have nothing in common but that workers pass
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
        median_s=from_log(centre),
        low_s=None if half_width is None else from_log(centre - half_width),
        high_s=None if half_width is None else from_log(centre + half_width),
        q10_s=float(low),
        q90_s=float(high),
        runs=len(every),
    )


SCHEMA = 1


class SizeRow(JsonForm):
    """One size of a message."""

    bytes: int
    time_s: Interval[float | None]
    q10_s: float
    q90_s: float
    """Quantiles of single runs."""
    runs: int
    bus_bytes_per_s: Interval[float | None] = NOT_MEASURED
    """Of all-reduces, ``busbw`` of nccl-tests (doc/PERFORMANCE.md): bytes per second times 2(p-1)/p, which a link of
    each worker carries in either direction; None of other operations."""
    fitted_s: float
    error: float
    """(fitted - measured) / measured."""
    predicted_error: float | None = None
    """Likewise of the link that the fewest workers showed; None for these themselves."""


class Fit(JsonForm):
    """A straight line through time against size, and what follows for the link."""

    start_s: Interval[float | None]
    """Seconds of a message without a byte."""
    latencies_per_step: Interval[float | None]
    """``start_s`` in alphas, per step of the operation's textbook algorithm."""
    bandwidth_bytes_per_s: Interval[float | None]
    """Of each worker's link, in the busier direction; None if time does not grow with size."""
    worst_error: float
    """Of the sizes, the one of largest magnitude, with its sign."""
    worst_bytes: int


class NetRow(JsonForm):
    """One operation of a back end between so many workers."""

    back_end: str
    framework: str
    framework_version: str | None
    operation: str
    workers: int
    servers: int
    launcher: str
    cluster: dict[str, Any] | None
    """Hosts and links that were asked for; None if the launcher made none."""
    steps: float
    """Of the textbook algorithm, for this number of workers and servers."""
    volume: float
    """Bytes through the busiest link, in one direction, per byte of the message."""
    launches: int
    failed_launches: int
    wrong_launches: int
    """Those in which a value was wrong."""
    checks: int
    wrong: int
    """Visits that were checked, over workers and launches, and those with a wrong value."""
    status: str
    """``ok``; ``wrong`` where any value was, or ``failed`` where no launch ended well: then nothing is fitted."""
    reason: str | None
    interval_over: str
    """``launches``, or ``rounds`` of a single launch, which know nothing of how launches differ."""
    level: float
    alpha_s: Interval[float | None]
    """One way of one byte over a plain socket between the same processes."""
    sizes: list[SizeRow]
    fit: Fit | None
    """Through the smallest and the largest size; what prediction uses."""
    least_squares: Fit | None
    """With relative weights over all sizes, to compare."""
    flags: list[str]
    received_bytes: int | None
    """By all hosts' interfaces, over all launches; None if the launcher made no hosts."""


class NetSummary(JsonForm):
    """Everything that a results folder knows of back ends."""

    rows: list[NetRow]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return [row.model_dump(mode="json") for row in self.rows]


@dataclass(frozen=True)
class Line:
    """``start_s + per_byte_s * bytes``."""

    start_s: float
    per_byte_s: float

    def at(self, sizes: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of messages of so many bytes."""
        return self.start_s + self.per_byte_s * np.asarray(sizes, dtype=np.float64)

    @classmethod
    def of_fit(cls, start_s: float, volume: float, bytes_per_s: float | None) -> "Line":
        """Return the line of a fit; without a bandwidth the time does not grow with the size.

        Args:
            start_s: of a message without a byte.
            volume: bytes through the busiest link per byte of the message.
            bytes_per_s: of that link.
        """
        return cls(start_s, volume / bytes_per_s if bytes_per_s else 0.0)


_POINTS = 40
"""Points of a line: a straight one is bent where axes are logarithmic."""


def line_points(line: Line, smallest: float, largest: float) -> list[tuple[float, float]]:
    """Return points ``(bytes, seconds)`` of ``line``, equally far apart on a logarithmic axis of sizes."""
    sizes = np.geomspace(smallest, largest, _POINTS)
    return list(zip(sizes.tolist(), line.at(sizes).tolist(), strict=True))


Method = Callable[[NDArray[np.float64], NDArray[np.float64]], Line]
"""Takes ascending sizes in bytes and their seconds."""


def through_ends(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> Line:
    """Return the line through the smallest and the largest size.

    What lies between is bent by buffers, bursts and switches of algorithm, which no line follows; the smallest size
    knows the latencies best and the largest the bandwidth.
    """
    per_byte = max((seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0]), 0.0)
    return Line(float(max(seconds[0] - per_byte * sizes[0], 0.0)), float(per_byte))


def least_squares(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> Line:
    """Return the line with the least sum of squared relative errors; neither number is negative."""
    terms = np.column_stack([np.ones_like(sizes), sizes]) / seconds[:, None]
    # Bytes are millions and the start is one: in units of the largest size both columns are of one magnitude.
    scale = np.array([1.0, sizes[-1]])
    (start, per_largest), _ = scipy.optimize.nnls(terms / scale, np.ones_like(sizes))
    return Line(float(start), float(per_largest / scale[1]))


METHODS: dict[str, Method] = {"ends": through_ends, "least_squares": least_squares}
PREFERRED = "ends"
"""What predicts best: docs/decisions/0008-net.md."""


def bounded(values: Sequence[float], value: float, level: float = LEVEL) -> Interval:
    """Return ``value`` with the interval that the units' own ``values`` give it: ± t(n - 1) sd / sqrt(n).

    On a logarithmic scale where all are positive, so that a time's interval is that of its inverse.
    """
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:  # noqa: PLR2004 - a spread needs two
        return Interval(value, None, None)
    if value > 0 and np.all(found > 0):
        half_width = float(half_width_between(np.log(found), level))
        return Interval(value, *(from_log(np.log(value) + sign * half_width) for sign in (-1.0, 1.0)))
    half_width = float(half_width_between(found, level))
    return Interval(value, value - half_width, value + half_width)
