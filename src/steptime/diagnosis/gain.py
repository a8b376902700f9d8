"""The gain that removing a part of the step would give, with an interval.

A step of T seconds of which a share r can be removed, and of which a change removes the part q, takes T (1 - r q):
samples per second grow by 1 / (1 - r q) (Amdahl 1967). The share r is measured, with its interval. How much of it a
change removes is known of few changes; where it is not, every q between two bounds is taken to be as likely, and of a
script all of it is a case of its own.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from steptime.diagnosis.form import GAIN_LEVEL
from steptime.results.json_form import Interval
from steptime.statistics.interval import LEVEL

_DRAWS = 4000
_SEED = 36
_MOST_SHARE = 0.99
ANY_PART: tuple[float, float] = (-0.1, 1.0)
"""Of a change of which nothing is known but what it acts on: it may gain nothing, or cost a little."""
_WHOLE = 0.4
"""How often a change of a script removes all of a part, beside any part of it. Of 19 changes that were verified
(``verified.csv``), 9 removed nine tenths and more, and the median 0.8; of these draws 0.45, and the median is 0.8."""
Draws = NDArray[np.float64]


def gain_without(share: Interval, removed: tuple[float, float] = ANY_PART) -> Interval[float | None]:
    """Return samples per second without a part of the step over those with it.

    Args:
        share: of the step, that could be removed; its interval is at ``LEVEL``.
        removed: least and largest part of it that the change removes.

    >>> gain_without(Interval(0.5, 0.5, 0.5), (1.0, 1.0)).value
    2.0
    """
    whole = np.clip(draws_of(share), 0.0, _MOST_SHARE)
    return interval_of(1.0 / (1.0 - whole * _between(*removed)))


def gain_of_rewriting(share: Interval, removed: tuple[float, float] = ANY_PART) -> Interval[float | None]:
    """Return samples per second of a script that somebody changes over those now.

    Args:
        share: of the step, that the change acts on; its interval is at ``LEVEL``. Who changes a script may take the
            whole cause out, which an option that acts on it seldom does.
        removed: least and largest part of it that the change removes otherwise.
    """
    parts = _between(*removed)
    parts[: round(_WHOLE * parts.size)] = 1.0
    return interval_of(1.0 / (1.0 - np.clip(draws_of(share), 0.0, _MOST_SHARE) * parts))


def gain_of_batch(fixed: Interval, factor: int) -> Interval[float | None]:
    """Return samples per second with a batch ``factor`` times as large over those now.

    Args:
        fixed: share of the step that does not grow with the batch.
        factor: 2 or more. The rest grows with it: k T / (F + k (T - F)).
    """
    share = np.clip(draws_of(fixed), 0.0, _MOST_SHARE)
    return interval_of(factor / (share + factor * (1.0 - share)))


def draws_of(found: Interval) -> Draws:
    """Return normal draws of a number with an interval at ``LEVEL``; all alike where it has none."""
    if found.low is None or found.high is None:
        return np.full(_DRAWS, found.value)
    deviation = (found.high - found.low) / 2 / NormalDist().inv_cdf((1 + LEVEL) / 2)
    drawn = np.random.default_rng(_SEED).standard_normal(_DRAWS)
    return np.asarray(found.value + deviation * drawn, dtype=np.float64)


def interval_of(draws: Draws, level: float = GAIN_LEVEL) -> Interval[float | None]:
    """Return the median of draws with its interval."""
    low, value, high = np.quantile(draws, [(1 - level) / 2, 0.5, (1 + level) / 2])
    return Interval(float(value), float(low), float(high))


def _between(least: float, most: float) -> Draws:
    # Not the generator of draws_of: the part that is removed has nothing to do with the noise of its share.
    return np.asarray(np.random.default_rng(_SEED + 1).uniform(least, most, _DRAWS), dtype=np.float64)
