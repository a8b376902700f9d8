"""What blocks of launches have of their own, such as a machine that slows down, for the trials of one workload.

What slows steps of 5 ms may leave those of 500 ms alone: a drift that was taken as common widened the intervals of
ResNet-50 threefold when LeNet-5 alone got faster. benchmarks/core/drifting-workloads.csv has the coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

_DRIFT_LEVEL = 0.2
"""Blocks are taken to differ when chance alone makes them differ as much with less than this probability."""
_PRIOR_DRIFT = 1.0
"""Degrees of freedom that a drift has from those of other workloads: of drifts that differ ninefold, since
trigamma(1/2) is the square of ln 9."""
_UNLIKE = 0.05
"""A drift keeps its own size where chance alone makes it differ as much from those of others, larger or smaller, with
less than this probability."""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class BlockEffects:
    """What blocks have of their own for all trials of a workload alike, such as a machine that slows down."""

    variance: float
    """Of the estimated effects, which includes the error of their estimation."""
    freedom: float
    drifted: bool
    """Whether blocks were shown to differ."""
    residual_freedom: float
    """Of all trials' spreads together; no sum over trials is known with more."""

    @classmethod
    def estimated(cls, effects: Array, by_chance: Array, freedom: float, most: float) -> "BlockEffects":
        """Return what blocks have by their estimated effects.

        Args:
            effects: of each block; those that trials connect sum to 0.
            by_chance: the variance that each has without any drift.
            freedom: of the effects.
            most: degrees of freedom of all trials together.
        """
        variance = float((effects**2).sum()) / freedom
        exceeded = float(scipy.special.fdtrc(freedom, most, variance / float(np.mean(by_chance))))
        return cls(variance, freedom, exceeded < _DRIFT_LEVEL, most)


def shrink_drifts(drifts: Sequence[BlockEffects], most: float) -> list[BlockEffects]:
    """Return drifts, of which each that was shown has what all say of its size, as ``_PRIOR_DRIFT`` degrees of freedom.

    Between two blocks one degree of freedom makes intervals three times as wide as two. A drift unlike those of the
    others keeps its own size.

    Args:
        drifts: of the workloads.
        most: degrees of freedom of the blocks that there are: drifts of several workloads may be one.
    """
    freedom = sum(drift.freedom for drift in drifts)
    total = sum(drift.freedom * drift.variance for drift in drifts)
    shrunk = []
    for drift in drifts:
        own = drift.freedom * drift.variance
        alike = drift.drifted and _are_alike(drift, total - own, freedom - drift.freedom)
        variance = (_PRIOR_DRIFT * total / freedom + own) / (_PRIOR_DRIFT + drift.freedom)
        known = max(drift.freedom, min(drift.freedom + _PRIOR_DRIFT, freedom, most))
        shrunk.append(replace(drift, variance=variance, freedom=known) if alike else drift)
    return shrunk


def _are_alike(drift: BlockEffects, others: float, freedom: float) -> bool:
    """Return whether a drift may be as large as the others, by the sum of their squares and its degrees of freedom."""
    if freedom <= 0.0 or others <= 0.0:
        return False
    exceeded = float(scipy.special.fdtrc(drift.freedom, freedom, drift.variance * freedom / others))
    return _UNLIKE < exceeded < 1.0 - _UNLIKE
