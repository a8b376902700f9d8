"""Where a series of step times becomes steady, and how many independent steps the steady part is worth."""

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_POINTS = 2048
"""A longer series is averaged in blocks down to this many points; slow correlations survive that."""
_CANDIDATES = 24
_SHORT = 0.01
"""Of the median: what a shorter step counts as where logarithms are taken."""
_FEWEST = 8
"""Below this many points nothing can be detected."""
_VALUES_AT_ONCE = 1 << 19
"""Of all starts of the rows that are looked at together: what fits a processor's cache."""
_SURE = 3.0
"""Standard errors between the steps before and behind a start, from which on they differ: starts are searched for."""
_WILD = 4.0
"""Deviations from the median of the later half, beyond which a step counts as just so far from it."""
_LONGEST_MEMORY = 0.95


Medians = TypeVar("Medians", float, NDArray[np.float64])


@dataclass(frozen=True)
class Steady:
    """The steady part of a series: what to drop before it, and how strongly its steps hang together."""

    start: int
    """Index of the first steady step."""
    inefficiency: float
    """g, at least 1: the variance of the mean of n steps is g times that of n independent ones."""
    effective: float
    """How many independent steps the steady part is worth: its length over g."""


def shortest_s(median_s: Medians) -> Medians:
    """Return the seconds that a shorter step counts as where logarithms are taken: on the clock it may have none."""
    seconds: Medians = np.maximum(_SHORT * median_s, np.finfo(np.float64).tiny)
    return seconds


def find_steady(times: NDArray[np.float64]) -> Steady:
    """Return the start that leaves the largest effective number of steps; never more than half is dropped.

    A start that is too early leaves the transient, whose long correlation makes g large; one that is too late
    throws steps away. Chodera, J. Chem. Theory Comput. 12 (2016) 1799. Works on logarithms, so that a rare slow
    step does not hide the transient. A step that has no length on the clock counts as a short one. An empty series
    gives (0, 1, 0).
    """
    return find_steady_rows(times[None, :])[0]


def find_steady_rows(times: NDArray[np.float64]) -> list[Steady]:
    """Return ``find_steady`` of each row: thousands of short series take a fraction of the time that loops take.

    Args:
        times: in seconds, one series in each row.
    """
    size = times.shape[1]
    if size < _FEWEST:
        return [Steady(0, 1.0, float(size))] * len(times)
    width = -(-size // _POINTS)
    starts = _starts(size // width)
    at_once = max(1, _VALUES_AT_ONCE // (len(starts) * size))
    found: list[Steady] = []
    for first in range(0, len(times), at_once):
        rows = times[first : first + at_once]
        # As numpy.median does, which takes long for a few values.
        middle = np.partition(rows, [(size - 1) // 2, size // 2], axis=1)
        medians = (middle[:, (size - 1) // 2] + middle[:, size // 2]) / 2.0
        logs = np.log(np.maximum(rows, shortest_s(medians)[:, None]))
        points = logs[:, : size - size % width].reshape(len(rows), -1, width).mean(axis=2)
        effective = _effective(points, starts, logs, width)
        for each, best in zip(effective, np.argmax(effective, axis=1).tolist(), strict=True):
            start = int(starts[best]) * width
            neff = float(min(each[best], size - start))
            found.append(Steady(start, (size - start) / neff, neff))
    return found


def is_transient(times: NDArray[np.float64], start: int) -> bool:
    """Return whether the steps before ``start`` differ from those behind it by more than chance.

    Of a short series whose neighbours hang together, ``find_steady`` often takes a long stretch for a transient that is
    none. The means of the logarithms of both parts are compared, with the variance that a first-order autoregression of
    what remains gives them; its correlation is corrected for the bias of short series (Kendall, Biometrika 41 (1954)
    403, twice, since each part has a mean of its own).
    """
    size = len(times)
    logs = np.log(np.maximum(times, shortest_s(float(np.median(times)))))
    later = logs[size // 2 :]
    middle = float(np.median(later))
    far = _WILD * 1.4826 * float(np.median(np.abs(later - middle)))
    if far <= 0.0:
        return True
    logs = np.clip(logs, middle - far, middle + far)
    before, behind = logs[:start], logs[start:]
    rest = np.concatenate([before - before.mean(), behind - behind.mean()])
    square = float(rest @ rest)
    if square <= 0.0:
        return True
    correlation = float(rest[1:] @ rest[:-1]) / square
    memory = min(max(correlation + 2.0 * (1.0 + 3.0 * correlation) / size, 0.0), _LONGEST_MEMORY)
    variance = square / (size - 2) * (1.0 + memory) / (1.0 - memory) * (1.0 / start + 1.0 / (size - start))
    return bool(abs(before.mean() - behind.mean()) > _SURE * np.sqrt(variance))


def inefficiencies(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return g of each row: 1 plus twice the sum of its autocorrelations up to the first that is not positive.

    A row without variation has g = 1.
    """
    counts = np.full(len(series), series.shape[1])
    return _summed(series - series.mean(axis=1, keepdims=True), counts)


@cache
def _starts(size: int) -> NDArray[np.int64]:
    # Transients are short, so candidates lie close together at the beginning.
    spread = np.geomspace(1, size // 2, _CANDIDATES).astype(np.int64)
    return np.unique(np.concatenate([[0], spread]))


def _effective(
    points: NDArray[np.float64], starts: NDArray[np.int64], logs: NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """Return, for each row of points and each start, how many independent steps are left."""
    rows, size = points.shape
    kept = np.arange(size)[None, :] >= starts[:, None]
    counts = size - starts
    means = (kept * points[:, None, :]).sum(axis=2) / counts
    centred = np.where(kept, points[:, None, :] - means[:, :, None], 0.0).reshape(-1, size)
    g = _summed(centred, np.tile(counts, rows)).reshape(rows, -1)
    if width > 1:
        # The variance of a block's mean holds the correlations inside the block.
        ratios = [
            [_ratio(each[start:].var(), steps[start * width :].var()) for start in starts]
            for each, steps in zip(points, logs, strict=True)
        ]
        g = np.maximum(g * width * np.array(ratios), 1.0)
    effective: NDArray[np.float64] = counts * width / g
    return effective


def _ratio(block: float, one: float) -> float:
    return float(block / one) if one > 0.0 else 0.0


def _summed(centred: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The g of rows that are centred, with zeros where they have no values."""
    size = centred.shape[1]
    padded = 1 << (2 * size - 1).bit_length()
    spectrum = np.fft.rfft(centred, n=padded, axis=1)
    products = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, n=padded, axis=1)[:, :size]
    variance = products[:, :1]
    flat = variance[:, 0] <= np.finfo(np.float64).eps * counts
    # The sums of products of lag k have n - k terms and are not divided by their number: that weighs each
    # autocorrelation with (1 - k / n), as the variance of a mean has it.
    correlation = products / np.where(flat[:, None], 1.0, variance)
    positive = np.cumprod(correlation[:, 1:] > 0.0, axis=1)
    g = 1.0 + 2.0 * (correlation[:, 1:] * positive).sum(axis=1)
    return np.where(flat, 1.0, np.maximum(g, 1.0))
