"""An estimate over ablation launches and their blocks, with its interval."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc  # type: ignore[import-untyped]  # scipy ships no types

from steptime.measurements.interval import LEVEL, t_quantile
from steptime.measurements.json_form import Interval

Array = NDArray[np.float64]

_POOL_ABOVE = 0.25
"""Launches are pooled when chance alone makes them differ as much with at least this probability."""


def over_blocks(launches: Sequence[Array]) -> Interval:
    """Return the mean over launches of what their blocks gave, with an interval at the level of all intervals.

    Blocks of one launch are paired differences, neighbours in time. Launches may differ by more than their blocks
    tell (memory layout, placement). If they do, by an F test of the variance between launches, the launches are the
    sample: Student's t over their means. If they do not, all blocks are: "sometimes pooling" at a preliminary level
    of 25 %, which keeps its level (Bancroft, Ann. Math. Stat. 15 (1944) 190; Bozivich, Bancroft, Hartley 27 (1956)
    1017). The scale is linear, because phases are added up and may be 0.

    Args:
        launches: for each launch, one value of each block.
    """
    means = np.array([blocks.mean() for blocks in launches])
    value = float(means.mean())
    counts = np.array([len(blocks) for blocks in launches])
    free_between, free_within = len(launches) - 1, int(counts.sum()) - len(launches)
    within = float(sum(((blocks - blocks.mean()) ** 2).sum() for blocks in launches))
    between = float((counts * (means - np.average(means, weights=counts)) ** 2).sum())
    if free_within > 0 and (free_between == 0 or _alike(between, free_between, within, free_within)):
        freedom = free_between + free_within
        error = np.sqrt((between + within) / freedom * np.mean(1.0 / counts) / len(launches))
    elif free_between > 0:
        freedom, error = free_between, means.std(ddof=1) / np.sqrt(len(launches))
    else:
        return Interval(value, None, None)
    half_width = float(t_quantile(freedom, LEVEL) * error)
    return Interval(value, value - half_width, value + half_width)


def _alike(between: float, free_between: int, within: float, free_within: int) -> bool:
    if within <= 0.0:
        return between <= 0.0
    ratio = (between / free_between) / (within / free_within)
    return float(fdtrc(free_between, free_within, ratio)) >= _POOL_ABOVE
