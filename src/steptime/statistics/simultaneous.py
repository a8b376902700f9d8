"""Critical values for simultaneous claims: the studentised range, and Šidák's level for separate claims.

A table that compares every trial with the best makes many claims at once. Each of them at 95 % would call one of eight
equal trials slower in half of all studies (docs/decisions/0017-simultaneous.md).
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.statistics.interval import t_quantile

_NODES = np.array([1.0, 1.3, 1.7, 2.2, 3.0, 4.0, 5.0, 7.0, 9.0, 12.0, 16.0, 25.0, 40.0, 80.0, 200.0, 1000.0])
"""Degrees of freedom between which critical values are interpolated, with an error below 1e-4 of them."""
_NORMAL = np.arange(-8.5, 8.51, 0.25)
_NEGLIGIBLE = 1e-14
_CLOSE, _MOST_STEPS = 1e-12, 100
_DENSITY = 0.25 * np.exp(-0.5 * _NORMAL**2) / np.sqrt(2.0 * np.pi)

Array = NDArray[np.float64]


def critical_value(freedom: float | Array, level: float, family: int = 2) -> Array:
    """Return how many standard errors of a difference to each side hold all differences of ``family`` means at once.

    With the probability ``level``, each of the differences lies within so many of its standard errors (Tukey; Kramer
    for unequal counts): the quantile of the studentised range over the square root of 2. Two means have one
    difference, and Student's t. As it holds for all pairs, it holds for the pair of any mean and the smallest one.

    Args:
        freedom: degrees of freedom of the standard error; taken as 1 where there are fewer.
        level: probability that all intervals hold their difference.
        family: number of means; at least 2.
    """
    if family <= 2:  # noqa: PLR2004 - two have one difference
        return t_quantile(freedom, level)
    inverse = 1.0 / np.clip(freedom, _NODES[0], _NODES[-1])
    values: Array = np.exp(_log_values(family, level)(inverse))
    return values


def sidak_level(level: float, claims: int) -> float:
    """Return the level of each of ``claims`` intervals with which all hold at once with the probability ``level``.

    Exact for independent claims, and on the safe side for intervals by Student's t that are not (Šidák 1967).
    """
    return float(level ** (1.0 / max(claims, 1)))


@lru_cache(maxsize=256)
def _log_values(family: int, level: float) -> Callable[[Array], Array]:
    logs = [_log_quantile(family, float(free), level) for free in _NODES]
    return _spline(1.0 / _NODES[::-1], np.array(logs[::-1]) - 0.5 * np.log(2.0))


def _log_quantile(family: int, freedom: float, level: float) -> float:
    """Return the logarithm of the studentised range's quantile.

    By false position, the Illinois way: the log odds of a range are nearly a straight line over its logarithm, so
    that some ten steps are enough. ``scipy.optimize`` would find the same, and takes ten times as long to import.
    """
    below, above = np.log([0.1, 5000.0])
    target = np.log(level / (1.0 - level))
    at_below, at_above = (_log_odds(end, family, freedom) - target for end in (below, above))
    kept = 0
    for _ in range(_MOST_STEPS):
        between = (below * at_above - above * at_below) / (at_above - at_below)
        value = _log_odds(between, family, freedom) - target
        if value < 0.0:
            moved, below, at_below = between - below, between, value
            at_above *= 0.5 if kept < 0 else 1.0
            kept = -1
        else:
            moved, above, at_above = above - between, between, value
            at_below *= 0.5 if kept > 0 else 1.0
            kept = 1
        if moved < _CLOSE or abs(value) < _CLOSE:
            break
    return float(between)


def _log_odds(log_range: float, family: int, freedom: float) -> float:
    share = min(max(_range_below(float(np.exp(log_range)), family, freedom), 1e-300), 1.0 - 1e-15)
    return float(np.log(share) - np.log1p(-share))


def _spline(x: Array, y: Array) -> Callable[[Array], Array]:
    """Return the cubic spline through points whose two outer pieces at each end are one polynomial (not-a-knot)."""
    widths, slopes = np.diff(x), np.diff(y) / np.diff(x)
    inner = np.arange(1, len(x) - 1)
    bends, right = np.zeros((len(x), len(x))), np.zeros(len(x))
    bends[inner, inner - 1], bends[inner, inner + 1] = widths[:-1], widths[1:]
    bends[inner, inner] = 2.0 * (widths[:-1] + widths[1:])
    right[inner] = 6.0 * np.diff(slopes)
    bends[0, :3] = widths[1], -widths[0] - widths[1], widths[0]
    bends[-1, -3:] = widths[-1], -widths[-1] - widths[-2], widths[-2]
    second = np.linalg.solve(bends, right)

    def value_at(places: Array) -> Array:
        piece = np.clip(np.searchsorted(x, places) - 1, 0, len(widths) - 1)
        left, width = places - x[piece], widths[piece]
        slope = slopes[piece] - width * (2.0 * second[piece] + second[piece + 1]) / 6.0
        third = (second[piece + 1] - second[piece]) / (6.0 * width)
        values: Array = y[piece] + left * (slope + left * (0.5 * second[piece] + left * third))
        return values

    return value_at


def _range_below(q: float, family: int, freedom: float) -> float:
    """Return P(range / s < q) of ``family`` standard normal numbers, with s² of ``freedom`` degrees of freedom.

    The integrals over the smallest number z and over log s are sums over equal distances, which converge
    exponentially for smooth integrands that vanish at both ends. ``scipy.stats.studentized_range`` gives the same
    values in a hundred times the time.
    """
    scales, weights = scale_density(freedom)
    within = scipy.special.ndtr(_NORMAL + q * scales[:, None]) - scipy.special.ndtr(_NORMAL)
    below = family * (_DENSITY * within ** (family - 1)).sum(axis=1)
    return float(below @ weights)


def scale_density(freedom: float) -> tuple[Array, Array]:
    """Return values of s, where s² is a mean square of so many degrees of freedom, with the weight of each.

    They are at equal distances of log s; a sum with these weights is an expectation over s.
    """
    distance = 0.2 / np.sqrt(max(freedom, 1.0))
    log_s = np.arange(-30.0 / freedom - 1.0, 6.0 / np.sqrt(freedom), distance)
    half = 0.5 * freedom
    log_density = (
        np.log(2.0) + half * np.log(half) - scipy.special.gammaln(half) + freedom * log_s - half * np.exp(2.0 * log_s)
    )
    weights: Array = distance * np.exp(log_density)
    weighty = weights > _NEGLIGIBLE
    return np.exp(log_s[weighty]), weights[weighty]
