"""Where a series of step times becomes steady, and how many independent steps the steady part is worth."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_POINTS = 2048
"""A longer series is averaged in blocks down to this many points; slow correlations survive that."""
_CANDIDATES = 24
_SHORT = 0.01
"""Of the median: what a shorter step counts as where logarithms are taken."""
_FEWEST = 8
"""Below this many points nothing can be detected."""


@dataclass(frozen=True)
class Steady:
    """The steady part of a series: what to drop before it, and how strongly its steps hang together."""

    start: int
    """Index of the first steady step."""
    inefficiency: float
    """g, at least 1: the variance of the mean of n steps is g times that of n independent ones."""
    effective: float
    """How many independent steps the steady part is worth: its length over g."""


def shortest_s(median_s: float) -> float:
    """Return the seconds that a shorter step counts as where logarithms are taken: on the clock it may have none."""
    return max(_SHORT * median_s, float(np.finfo(np.float64).tiny))


def find_steady(times: NDArray[np.float64]) -> Steady:
    """Return the start that leaves the largest effective number of steps; never more than half is dropped.

    A start that is too early leaves the transient, whose long correlation makes g large; one that is too late
    throws steps away. Chodera, J. Chem. Theory Comput. 12 (2016) 1799. Works on logarithms, so that a rare slow
    step does not hide the transient. A step that has no length on the clock counts as a short one. An empty series
    gives (0, 1, 0).
    """
    size = len(times)
    if size < _FEWEST:
        return Steady(0, 1.0, float(size))
    # As numpy.median does, which takes long for a few values.
    middle = np.partition(times, [(size - 1) // 2, size // 2])
    median = float(middle[(size - 1) // 2] + middle[size // 2]) / 2.0
    logs = np.log(np.maximum(times, shortest_s(median)))
    width = -(-size // _POINTS)
    points = logs[: size - size % width].reshape(-1, width).mean(axis=1)
    starts = _starts(len(points))
    effective = _effective(points, starts, logs, width)
    best = int(np.argmax(effective))
    start = int(starts[best]) * width
    left = size - start
    neff = float(min(effective[best], left))
    return Steady(start, left / neff, neff)


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
    size = len(points)
    kept = np.arange(size)[None, :] >= starts[:, None]
    counts = size - starts
    means = (kept * points).sum(axis=1) / counts
    g = _summed(np.where(kept, points - means[:, None], 0.0), counts)
    if width > 1:
        # The variance of a block's mean holds the correlations inside the block.
        ratios = [_ratio(points[start:].var(), logs[start * width :].var()) for start in starts]
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
