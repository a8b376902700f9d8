"""A trial's launches, reduced to its step time.

How the step times of a trial are spread, small enough to be drawn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.measurements.interval import step_time
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
    mean_low: float
    mean_high: float
    steps: int
    """Steady steps over all launches."""
    dropped: int
    """Timed steps before the steady part, over all launches."""
    launches: list[LaunchTimes]


def estimate(launches: Sequence[Launch], strategy: str) -> Estimate | None:
    """Return the step time over those of ``launches`` that timed a step; None when none did."""
    found = [each for each in (launch_times(launch, strategy) for launch in launches) if each is not None]
    if not found:
        return None
    median, mean = step_time(found), step_time(found, "mean")
    return Estimate(
        median=median.value,
        low=median.low,
        high=median.high,
        level=median.level,
        mean=mean.value,
        mean_low=mean.low,
        mean_high=mean.high,
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
