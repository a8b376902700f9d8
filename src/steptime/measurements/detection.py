"""How large a change has to be for a comparison of two trials to show it.

An interval that holds 1 shows no difference, which is little to know of an interval that is wide. The smallest change
that the same launches would have shown with a given power is how much "no difference" excludes.
"""

import numpy as np
from scipy.optimize import brentq  # type: ignore[import-untyped]  # scipy ships no types
from scipy.special import gammaln, ndtr  # type: ignore[import-untyped]

from steptime.measurements.comparison import Comparison
from steptime.measurements.simultaneous import critical_value, scale_density

POWER = 0.8
"""The probability with which the smallest detectable change would have been shown."""
_MOST_LAUNCHES = 1000
_MOST_ERRORS = 1e4
"""Standard errors: a change that takes more to be shown is as good as never shown."""


def power_to_show(comparison: Comparison, change: float) -> float | None:
    """Return the probability that such launches show a change of the ratio by ``change``.

    The power of a t test, in which the change is shown if the interval excludes 1 on its side, is that of a noncentral
    distribution around log(1 + change) over the standard error. That error was itself estimated, so that its inverse
    is too large on average, and most so with few degrees of freedom. Half of this bias is taken off: promises between
    30 and 80 % are then kept to about 5 points on average from four degrees of freedom on, and higher ones are kept
    more often than was promised (benchmarks/compare).

    Args:
        comparison: whose launches and spread are taken for granted.
        change: relative, as 0.05; a negative one is a speed-up.

    Returns None if launches do not show how they differ.
    """
    if not comparison.covers_launches or comparison.error <= 0.0:
        return None
    return _power(abs(float(np.log1p(change))) / comparison.error, _critical(comparison), comparison.freedom)


def smallest_change(comparison: Comparison, power: float = POWER) -> float | None:
    """Return the smallest relative growth of the ratio that such launches would have shown with ``power``.

    Returns None if launches do not show how they differ.
    """
    if not comparison.covers_launches:
        return None
    if comparison.error <= 0.0:
        return 0.0
    critical, freedom = _critical(comparison), comparison.freedom
    errors = brentq(lambda effect: _power(effect, critical, freedom) - power, 0.0, _MOST_ERRORS, xtol=1e-6)
    return float(np.expm1(errors * comparison.error))


def launches_to_show(comparison: Comparison, change: float, power: float = POWER) -> int | None:
    """Return about how many more launches of each trial would show ``change`` with ``power``; 0 if these do.

    Returns None if launches do not show how much they differ, or if a thousand do not suffice.
    """
    if comparison.spread is None:
        return None
    per_launch = 1 if comparison.pairs else 2
    counts = np.arange(max(comparison.launches, 2), _MOST_LAUNCHES, dtype=np.float64)
    freedom = comparison.prior_freedom + per_launch * (counts - 1)
    # The quantile of a noncentral t is near the critical value plus that of the central one.
    errors = critical_value(freedom, comparison.level, comparison.family) + critical_value(freedom, 2.0 * power - 1.0)
    enough = np.flatnonzero(errors * comparison.spread / np.sqrt(counts) <= abs(np.log1p(change)))
    return int(counts[enough[0]]) - comparison.launches if len(enough) else None


def _critical(comparison: Comparison) -> float:
    """Return the half-width of the interval in standard errors."""
    return 0.5 * float(np.log(comparison.high / comparison.low)) / comparison.error


def _power(effect: float, critical: float, freedom: float) -> float:
    """Return P(Z + effect > critical s), with Z standard normal and s² a mean square of so many degrees of freedom.

    The effect is taken smaller by half of what E[1 / s] exceeds 1.
    """
    freedom = max(freedom, 1.0)
    half = 0.5 * freedom
    unbiased = np.exp(gammaln(half) - gammaln(half - 0.5)) / np.sqrt(half) if freedom > 1.0 else 0.0
    scales, weights = scale_density(freedom)
    return float(ndtr(0.5 * (1.0 + unbiased) * effect - critical * scales) @ weights)
