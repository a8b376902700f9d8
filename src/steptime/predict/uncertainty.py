"""The interval of a prediction: its three parts, and how much each adds.

Parameters are drawn; launches differ by as much as they were seen to; and the model errs outside what was measured.
What the model does not know is communication and waiting, which more often takes longer than modelled than shorter. So
that error is skewed, the messages of a step take so many times as long, and what of them hides still does: no step gets
shorter than its computing. Another workload or batch, and more workers that take turns on a core, change computing
itself, by a factor that errs to both sides.

Extrapolation: how far a query is from the measured configurations, and how much that widens its interval.

The logarithm of how many times as long messages and waiting take has a variance that grows by a constant with each
doubling of workers beyond the most that were measured, and by another with the first step from one host to several. So
the errors of two doublings are independent, as the curve model has its drift from 147 published curves; the held-out
points below, of one and two doublings, do not tell that from errors that add up. Computing errs where more workers take
turns on a core than were measured. These numbers were fitted to steps that predictions of this very model did not know
(``held_out_points.csv``), as intervals that are as narrow as they may be (``extrapolation.json``). Another workload
adds the error that scaling by arithmetic had where it could be checked; batch and bandwidth add priors, since no kept
study varies them alone.

Where a model missed what was left out of its fit (``held_out_test``), its error is larger by as much.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import log2, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steptime.fitting.posterior import DRAWS, Array
from steptime.fitting.step_model import StepModel, phases_of, step_of

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
    of_model: float = 0.0
    """Standard deviation of a logarithm, by which the model errs on what was left out of its fit."""

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
            "model": self.of_model,
        }

    @property
    def of_computing(self) -> float:
        """Of the logarithm of computing: another batch or workload, more workers on a core, a model that errs."""
        return self._together("batch", "workload", "turns", "model")

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


@dataclass(frozen=True)
class IntervalShares:
    """Shares of the variance of a step's logarithm; they add up to 1, or all are 0 where nothing is uncertain."""

    parameters: float
    launches: float
    extrapolation: float
    """Of the model's error: outside what was measured, and on what was left out of its fit."""

    def in_words(self) -> str:
        """Return ``60 % parameters, 30 % launches, 10 % error of the model``, the largest first."""
        shares = {"parameters": self.parameters, "launches": self.launches, "error of the model": self.extrapolation}
        ordered = sorted(shares.items(), key=lambda item: -item[1])
        return ", ".join(f"{100 * share:.0f} % {name}" for name, share in ordered)


@dataclass(frozen=True)
class UncertainStep:
    """Draws of a step, and where they come from."""

    phases: Mapping[str, Array]
    """Seconds of each by the parameters alone, (draws,)."""
    modelled: Array
    """Seconds by the parameters alone, (draws,)."""
    seen_phases: Mapping[str, Array]
    """With messages and waiting that err as the model does, (draws,)."""
    seen: Array
    """As a launch would measure it, (draws,)."""
    shares: IntervalShares


def uncertain_step(
    parameters: Mapping[str, Array],
    model: StepModel,
    extrapolation: Extrapolation,
    spread: float,
    rng: np.random.Generator,
) -> UncertainStep:
    """Return the draws of a step.

    Args:
        parameters: draws of each.
        model: of the step.
        extrapolation: how far the step lies outside the measured ones.
        spread: relative standard deviation between launches.
        rng: source of the draws.
    """
    phases = phases_of(parameters, model)
    step = step_of(phases)
    both = np.exp(np.hypot(extrapolation.of_computing, spread) * rng.standard_normal(DRAWS))
    seen_phases = phases
    if extrapolation.of_waiting > 0.0:
        normal = rng.standard_normal(DRAWS)
        longer = np.exp(extrapolation.of_waiting * skewed(normal))
        seen_phases = phases_of(with_longer_waits(parameters, model, longer), model)
    seen = step_of(seen_phases)
    outside_s = np.var(np.log(seen / step)) + extrapolation.of_computing**2
    parts = np.array([np.var(np.log(step)), spread**2, outside_s])
    whole = parts.sum()
    shares = parts / whole if whole > 0.0 else parts
    return UncertainStep(phases, step, seen_phases, seen * both, IntervalShares(*(float(share) for share in shares)))


def with_longer_waits(parameters: Mapping[str, Array], model: StepModel, longer: Array | float) -> dict[str, Array]:
    """Return parameters with which every message takes so many times as long, and workers differ as much more."""
    found = dict(parameters)
    for name in model.link_factors:
        found[name] = found[name] / longer if name.endswith("bandwidth_factor") else found[name] * longer
    for name in ("persistent", "transient"):
        found[name] = found[name] * longer
    return found
