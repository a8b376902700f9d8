"""A trial's launches, reduced to its step time."""

from collections.abc import Sequence
from dataclasses import dataclass

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
