"""The step time of a trial over its launches, and the distribution of its steps, small enough to be drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptime.measurements.interval import step_time
from steptime.measurements.launch_spread import TrialSpread, pooled_error
from steptime.measurements.launch_times import LaunchTimes, launch_times
from steptime.measurements.records import Launch


@dataclass(frozen=True)
class Estimate:
    """The step time of a trial, in seconds."""

    median: float
    low: float
    high: float
    level: float
    mean: float
    steps: int
    """Steady steps over all launches."""
    dropped: int
    """Timed steps before the steady part, over all launches."""
    launches: list[LaunchTimes]
    spread: TrialSpread | None = None
    """How its launches spread, with what the study's other trials say of that; None where nothing was pooled."""

    @property
    def seen(self) -> tuple[float, float]:
        """The shortest and the longest median of a launch, in seconds."""
        medians = [math.exp(each.log_median) for each in self.launches]
        return min(medians), max(medians)

    def with_spread(self, spread: TrialSpread) -> "Estimate":
        """Return the same estimate with the interval that the pooled ``spread`` of launches gives it."""
        share = 1.0 / len(self.launches)
        found = pooled_error([(spread, {launch.block: share for launch in self.launches})], self.level)
        low, high = (self.median * math.exp(sign * found.half_width) for sign in (-1.0, 1.0))
        return replace(self, low=low, high=high, spread=spread)


def estimate(launches: Sequence[Launch], strategy: str) -> Estimate | None:
    """Return the step time over those of ``launches`` that timed a step; None when none did."""
    found = [each for each in (launch_times(launch, strategy) for launch in launches) if each is not None]
    if not found:
        return None
    median = step_time(found)
    return Estimate(
        median=median.value,
        low=median.low,
        high=median.high,
        level=median.level,
        mean=math.exp(float(np.mean([launch.log_mean for launch in found]))),
        steps=sum(len(each.steady_s) for each in found),
        dropped=sum(each.dropped for each in found),
        launches=found,
    )


POINTS = 101
"""Most points of a distribution: one per percent, from the shortest step to the longest."""


def step_time_quantiles(launches: Iterable[Launch], strategy: str) -> list[tuple[float, float]]:
    """Return points ``(share, seconds)``: that share of the steady steps took at most so long.

    Steps of all launches that ended well count alike; launches may be given one by one, only their step times are
    kept. With fewer than ``POINTS`` steps there is a point per step; without any, the list is empty.
    """
    reduced = (launch_times(launch, strategy) for launch in launches)
    steady = [each.steady_s for each in reduced if each is not None]
    if not steady:
        return []
    times = np.concatenate(steady)
    shares = np.linspace(0.0, 1.0, min(POINTS, len(times))) if len(times) > 1 else np.ones(1)
    return list(zip(shares.tolist(), np.quantile(times, shares).tolist(), strict=True))
