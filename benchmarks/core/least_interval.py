"""How narrow an interval of a mean can be that holds the truth whether or not neighbours hang together.

``python benchmarks/core/least_interval.py`` prints a CSV row for each number of values and coverage. Values are those
of a normal autoregression with a correlation of 0, 0.3 or 0.6; the interval lies around their mean and may use anything
that the values show. *width* is the least mean width at correlation 0, over that of Student's interval, with which at
least *coverage* percent of intervals hold the mean at each correlation; *at 0*, *at 0.3* and *at 0.6* are what such
intervals cover.

Given the shape of the values (their deviations over the length of these), the deviation of their mean over that length
has Student's distribution, shifted and scaled (integrate the normal density over all lengths). So the best half-width
for a shape maximises the weighted probabilities of holding the mean less the width, with weights (Lagrange's) that
leave the wanted coverage. No weights give more than the least width, so that of the last ones is a bound.
"""

import sys
from collections.abc import Sequence

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types
from numpy.typing import NDArray
from run_interval import series_of

from steptime.statistics.interval import LEVEL, t_quantile

Array = NDArray[np.float64]

CORRELATIONS = (0.0, 0.3, 0.6)
SHAPES = 700
"""Drawn at each correlation."""
_HALF_WIDTHS = np.concatenate([np.arange(0.2, 4.0, 0.05), np.arange(4.0, 15.0, 0.25)])
"""In those of Student's interval."""
_ROUNDS = 1500


def of_shape(shapes: Array, correlation: float) -> tuple[Array, Array, Array]:
    """Return the log density of each shape, and where and how wide the deviation of the mean lies for it."""
    count = shapes.shape[1]
    inverse = np.eye(count) * (1.0 + correlation**2)
    inverse[0, 0] = inverse[-1, -1] = 1.0
    inverse -= correlation * (np.eye(count, k=1) + np.eye(count, k=-1))
    inverse /= 1.0 - correlation**2
    total, cross = float(inverse.sum()), (shapes @ inverse).sum(axis=1)
    left = np.einsum("ij,jk,ik->i", shapes, inverse, shapes) - cross**2 / total
    free = count - 1.0
    log_density = -0.5 * (free * (np.log(1.0 - correlation**2) + np.log(left)) + np.log(total))
    return log_density, -cross / total, np.sqrt(left / (total * free))


def least_width(count: int, coverage: float) -> tuple[float, Array]:
    """Return the least mean width at correlation 0, over Student's, and the coverage at each correlation."""
    rng = np.random.default_rng(count)
    values = np.concatenate([series_of(rng, SHAPES, count, each) for each in CORRELATIONS])
    deviations = values - values.mean(axis=1, keepdims=True)
    shapes = deviations / np.linalg.norm(deviations, axis=1, keepdims=True)
    logs, places, scales = (np.array(each) for each in zip(*(of_shape(shapes, r) for r in CORRELATIONS), strict=True))
    drawn = np.logaddexp.reduce(logs, axis=0) - np.log(len(CORRELATIONS))
    weights = np.exp(logs - drawn)
    weights /= weights.sum(axis=1, keepdims=True)
    ends = float(t_quantile(count - 1, LEVEL)) / np.sqrt(count * (count - 1.0)) * _HALF_WIDTHS
    below, above = ((sign * ends - places[..., None]) / scales[..., None] for sign in (-1.0, 1.0))
    held = weights[..., None] * (scipy.special.stdtr(count - 1, above) - scipy.special.stdtr(count - 1, below))
    costs, rows = weights[0][:, None] * _HALF_WIDTHS, np.arange(len(shapes))
    prices = np.full(len(CORRELATIONS), 5.0)
    for turn in range(_ROUNDS):
        best = (np.tensordot(prices, held, 1) - costs).argmax(axis=1)
        covered = held[:, rows, best].sum(axis=1)
        prices = np.maximum(0.0, prices + 60.0 / (1.0 + turn / 30.0) * (coverage - covered))
    return float(costs[rows, best].sum() + prices @ (coverage - covered)), covered


def main(counts: Sequence[int]) -> None:
    """Print the table."""
    sys.stdout.write("values,coverage,width,at 0,at 0.3,at 0.6\n")
    for count in counts:
        for coverage in (0.93, 0.95):
            width, covered = least_width(count, coverage)
            shares = ",".join(f"{100.0 * each:.1f}" for each in covered)
            sys.stdout.write(f"{count},{100.0 * coverage:.0f},{width:.2f},{shares}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [8, 13, 16, 20, 32, 64])
