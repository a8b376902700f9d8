"""By how much a quantity grows, whatever single values do."""

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.results.json_form import Interval
from steptime.statistics.interval import LEVEL

_MOST = 1000
"""Values of which all pairs are looked at."""


def growth(at: NDArray[np.float64], values: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the median slope over all pairs of values, with Sen's interval (J. Am. Stat. Assoc. 63 (1968) 1379).

    The numbers are those of ``scipy.stats.theilslopes``, whose import takes longer than all else of an answer.

    Args:
        at: when, increasing; of more than ``_MOST``, evenly spread ones are taken.
        values: then.
        level: of the interval.
    """
    if len(at) > _MOST:
        chosen = np.linspace(0, len(at) - 1, _MOST).astype(int)
        at, values = at[chosen], values[chosen]
    count = len(at)
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((values[second] - values[first]) / (at[second] - at[first]))
    _, ties = np.unique(values, return_counts=True)
    equal = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    spread = np.sqrt((count * (count - 1) * (2 * count + 5) - equal) / 18.0)
    away = float(scipy.special.ndtri(0.5 + 0.5 * level)) * float(spread)
    low = max(round((len(slopes) - away) / 2.0) - 1, 0)
    high = min(round((len(slopes) + away) / 2.0), len(slopes) - 1)
    return Interval(float(np.median(slopes)), float(slopes[low]), float(slopes[high]))
