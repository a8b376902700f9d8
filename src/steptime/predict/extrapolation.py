"""Extrapolation: how far a query is from the measured configurations, and how much that widens its interval.

The standard deviation of the logarithm of a step grows by a constant with each doubling of workers beyond the most that
were measured, and by another, in quadrature, with the first step from one host to several. Both are read off the
residuals of published curves (``extrapolation.json``). Another workload adds the error that scaling by arithmetic had
where it could be checked; batch and bandwidth add priors, since no published table varies them alone.
"""

import json
from dataclasses import dataclass
from functools import cache
from math import log2
from pathlib import Path

import numpy as np

_NORMAL_90 = 1.6449
_BATCH = 0.03
_BANDWIDTH = 0.02


@dataclass(frozen=True)
class ErrorGrowth:
    """Standard deviations of the logarithm of a step."""

    per_doubling: float
    crossing: float
    workload: float
    """Of a step that is scaled by arithmetic from another workload: one layer's is not as quick as another's."""


@cache
def error_growth() -> ErrorGrowth:
    """Return the standard deviations that published curves give."""
    data = json.loads(Path(__file__).with_name("extrapolation.json").read_text(encoding="utf-8"))
    seen = [(log2(row["extrapolation"]), row["q90"] / _NORMAL_90, row["points"]) for row in data["regime_seen"]]
    per_doubling = float(np.average([sd / doublings for doublings, sd, _ in seen], weights=[n for *_, n in seen]))
    out = [(log2(row["extrapolation"]), row["q90"] / _NORMAL_90, row["points"]) for row in data["first_step_out"]]
    rest = [max(sd**2 - (per_doubling * doublings) ** 2, 0.0) for doublings, sd, _ in out]
    crossing = float(np.sqrt(np.average(rest, weights=[n for *_, n in out])))
    return ErrorGrowth(per_doubling, crossing, float(np.sqrt(np.mean(np.square(data["workload"]["log_ratios"])))))


@dataclass(frozen=True)
class Extrapolation:
    """Ratios between what is asked and the nearest that was measured, each at least 1."""

    workers: float = 1.0
    batch: float = 1.0
    bandwidth: float = 1.0
    workload: float = 1.0
    crosses: bool = False
    """Whether hosts are crossed that no measured step crossed."""

    @property
    def factor(self) -> float:
        """The largest of the ratios."""
        return max(self.workers, self.batch, self.bandwidth, self.workload)

    @property
    def parts(self) -> dict[str, float]:
        """The standard deviation of the logarithm of the step that each direction adds, in quadrature."""
        found = error_growth()
        return {
            "workers": found.per_doubling * log2(self.workers),
            "batch": _BATCH * log2(self.batch),
            "bandwidth": _BANDWIDTH * log2(self.bandwidth),
            "workload": found.workload if self.workload > 1.0 else 0.0,
            "crosses": found.crossing if self.crosses else 0.0,
        }

    @property
    def deviation(self) -> float:
        """The standard deviation of the logarithm of the step that comes on top of the parameters' own."""
        return float(np.sqrt(sum(part**2 for part in self.parts.values())))

    @property
    def of_computing(self) -> float:
        """The part that another batch or workload adds, whose computing nobody measured."""
        return float(np.hypot(self.parts["batch"], self.parts["workload"]))

    @property
    def of_waiting(self) -> float:
        """The part that more workers, hosts or bandwidth add, which change what a worker waits for."""
        return float(np.sqrt(self.deviation**2 - self.of_computing**2))


def ratio_outside(asked: float, measured: list[float]) -> float:
    """Return how far ``asked`` lies outside the range of what was measured, as a ratio; 1 inside it."""
    return max(1.0, asked / max(measured), min(measured) / asked)
