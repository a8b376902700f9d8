"""Extrapolation: how far a query is from the measured configurations, and how much that widens its interval.

The logarithm of how many times as long messages and waiting take has a variance that grows by a constant with each
doubling of workers beyond the most that were measured, and by another with the first step from one host to several. So
the errors of two doublings are independent, as the curve model has its drift from 147 published curves; the held-out
points below, of one and two doublings, do not tell that from errors that add up. Computing errs where more workers take
turns on a core than were measured. These numbers were fitted to steps that predictions of this very model did not know
(``held_out_points.csv``), as intervals that are as narrow as they may be (``extrapolation.json``). Another workload
adds the error that scaling by arithmetic had where it could be checked; batch and bandwidth add priors, since no kept
study varies them alone.
"""

import json
from dataclasses import dataclass
from functools import cache
from math import log2, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BATCH = 0.03
_BANDWIDTH = 0.06


@dataclass(frozen=True)
class ErrorGrowth:
    """Standard deviations of logarithms."""

    per_doubling: float
    """Of the duration of messages and waiting; of several doublings, times their root."""
    crossing: float
    """Likewise."""
    turns: float
    """Of computing, for each doubling of the workers that take turns on a core."""
    shorter: float
    """Of the error of messages, the side on which they are shorter than modelled over the other."""
    workload: float
    """Of a step that is scaled by arithmetic from another workload: one layer's is not as quick as another's."""


@cache
def error_growth() -> ErrorGrowth:
    """Return what held-out points of kept studies give."""
    data = json.loads(Path(__file__).with_name("extrapolation.json").read_text(encoding="utf-8"))
    fitted = {name: float(data[name]) for name in ("per_doubling", "crossing", "turns", "shorter")}
    return ErrorGrowth(**fitted, workload=float(np.sqrt(np.mean(np.square(data["workload"]["log_ratios"])))))


def skewed(normal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return standard normal draws with the lower side as narrow as errors of messages have it."""
    found: NDArray[np.float64] = np.where(normal > 0.0, normal, error_growth().shorter * normal)
    return found


@dataclass(frozen=True)
class Extrapolation:
    """Ratios between what is asked and the nearest that was measured, each at least 1."""

    workers: float = 1.0
    batch: float = 1.0
    bandwidth: float = 1.0
    workload: float = 1.0
    turns: float = 1.0
    """Of workers that take turns on a core."""
    crosses: bool = False
    """Whether hosts are crossed that no measured step crossed."""

    @property
    def factor(self) -> float:
        """The largest of the ratios but that of turns, which follows from the workers."""
        return max(self.workers, self.batch, self.bandwidth, self.workload)

    @property
    def parts(self) -> dict[str, float]:
        """The standard deviation of a logarithm that each direction adds, in quadrature."""
        found = error_growth()
        return {
            "workers": found.per_doubling * sqrt(log2(self.workers)),
            "bandwidth": _BANDWIDTH * log2(self.bandwidth),
            "crosses": found.crossing if self.crosses else 0.0,
            "batch": _BATCH * log2(self.batch),
            "workload": found.workload if self.workload > 1.0 else 0.0,
            "turns": found.turns * log2(self.turns),
        }

    @property
    def of_computing(self) -> float:
        """Of the logarithm of computing: another batch or workload, or more workers on a core than were measured."""
        return self._together("batch", "workload", "turns")

    @property
    def of_waiting(self) -> float:
        """Of the logarithm of how long messages and waiting take, beyond measured workers, hosts and bandwidth."""
        return self._together("workers", "bandwidth", "crosses")

    def _together(self, *names: str) -> float:
        parts = self.parts
        return float(np.sqrt(sum(parts[name] ** 2 for name in names)))


def ratio_outside(asked: float, measured: list[float]) -> float:
    """Return how far ``asked`` lies outside the range of what was measured, as a ratio; 1 inside it."""
    return max(1.0, asked / max(measured), min(measured) / asked)
