"""Resampling a series in blocks, so that neighbours which hang together stay together."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 21
"""Values resampled at once: 16 MiB of them, and as much again for their indices."""

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Reduces the last axis."""


def block_length(series: NDArray[np.float64]) -> float:
    """Return the mean length of the blocks that suits ``series`` best, for the stationary bootstrap.

    The automatic choice of Politis and White (Econometric Reviews 23, 2004) as corrected by Patton, Politis and
    White (28, 2009): b = (2 G² / D)^(1/3) n^(1/3), with G = sum |k| R(k), D = 2 (sum R(k))², the autocovariances R
    weighted by a flat-top window whose width is twice the last lag that is significant.
    """
    size = len(series)
    centred = series - series.mean()
    if size < 4 or not np.any(np.abs(centred) > 0.0):  # noqa: PLR2004 - no lag to look at
        return 1.0
    run = max(5, int(np.ceil(np.sqrt(np.log10(size)))))
    last = min(size - 1, int(np.ceil(np.sqrt(size))) + run)
    covariance = _autocovariance(centred, last)
    limit = 2.0 * np.sqrt(np.log10(size) / size)
    small = np.abs(covariance[1:] / covariance[0]) < limit
    width = min(2 * max(_first_quiet(small, run), 1), last)
    lags = np.arange(-width, width + 1)
    weights = np.minimum(1.0, 2.0 * (1.0 - np.abs(lags) / width))
    weighted = weights * covariance[np.abs(lags)]
    spread = 2.0 * weighted.sum() ** 2
    if spread <= 0.0:
        return 1.0
    length = (2.0 * (np.abs(lags) * weighted).sum() ** 2 / spread) ** (1 / 3) * size ** (1 / 3)
    return float(np.clip(length, 1.0, np.ceil(min(3.0 * np.sqrt(size), size / 3.0))))


def stationary_bootstrap(
    series: NDArray[np.float64], statistic: Statistic, replicates: int, length: float, seed: int
) -> NDArray[np.float64]:
    """Return ``statistic`` of ``replicates`` resampled series.

    The series is closed to a ring and cut into blocks that begin anywhere and whose lengths are geometric with mean
    ``length`` steps, which keeps the resampled series stationary. Politis and Romano, JASA 89 (1994) 1303.
    """
    rng = np.random.default_rng(seed)
    parts = [statistic(series[indices]) for indices in _indices(rng, len(series), replicates, length)]
    return np.concatenate(parts)


def _indices(rng: np.random.Generator, size: int, replicates: int, length: float) -> Iterator[NDArray[np.int64]]:
    at_once = max(1, min(replicates, _CHUNK // size))
    for done in range(0, replicates, at_once):
        rows = min(at_once, replicates - done)
        total = rows * size
        begins = rng.random(total, dtype=np.float32) < 1.0 / length
        begins[::size] = True
        first = np.flatnonzero(begins)
        # A block that begins at position p of the output with step s of the series adds s - p to each position.
        shifts = rng.integers(0, size, len(first)) - first
        lengths = np.diff(first, append=total)
        yield ((np.arange(total) + np.repeat(shifts, lengths)) % size).reshape(rows, size)


def _autocovariance(centred: NDArray[np.float64], last: int) -> NDArray[np.float64]:
    size = len(centred)
    padded = 1 << (2 * size - 1).bit_length()
    spectrum = np.fft.rfft(centred, n=padded)
    products: NDArray[np.float64] = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, n=padded)
    return products[: last + 1] / size


def _first_quiet(small: NDArray[np.bool_], run: int) -> int:
    """The lag before the first ``run`` autocorrelations in a row that are small, or else the last that is not."""
    if len(small) >= run:
        sums = np.convolve(small, np.ones(run, dtype=np.int64), mode="valid")
        quiet = np.flatnonzero(sums == run)
        if len(quiet):
            return int(quiet[0])
    loud = np.flatnonzero(~small)
    return int(loud[-1]) + 1 if len(loud) else 1
