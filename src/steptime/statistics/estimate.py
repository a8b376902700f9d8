"""The step time of a trial over its launches, and the distribution of its steps, small enough to be drawn."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.results.records import Launch
from steptime.statistics.interval import from_log, step_time, t_quantile
from steptime.statistics.launch_spread import ENOUGH, TrialSpread, mean_variance, pooled_error
from steptime.statistics.launch_times import LaunchTimes, by_block, launch_times
from steptime.statistics.shared_imports import one_of_each_import
from steptime.statistics.stalls import Stalls, by_length, find_stalls, quantiles_of


@dataclass(frozen=True)
class Estimate:
    """The step time of a trial, in seconds."""

    mean: float
    """The step time: the mean of all steady steps, of which launches weigh alike."""
    low: float
    high: float
    level: float
    """Of the interval of ``mean``."""
    median: float
    p90: float
    p99: float
    """Quantiles of the steps: of each launch, of which the geometric mean is taken."""
    stalls: Stalls | None
    """Where mean and median part."""
    steps: int
    """Steady steps over all launches."""
    dropped: int
    """Timed steps before the steady part, over all launches."""
    launches: list[LaunchTimes]
    spread: TrialSpread | None = None
    """How its launches spread, with what the study's other trials say of that; None if nothing was pooled."""

    @property
    def seen(self) -> tuple[float, float]:
        """The shortest and the longest step time of a launch, in seconds."""
        means = [each.log_mean for each in self.launches]
        return from_log(min(means)), from_log(max(means))

    def with_spread(self, spread: TrialSpread) -> "Estimate":
        """Return the same estimate with the interval that the pooled ``spread`` of launches gives it."""
        share = 1.0 / len(self.launches)
        pooled = pooled_error([(spread, dict.fromkeys(by_block(self.launches), share))], self.level)
        return replace(self.with_half_width(pooled.half_width), spread=spread)

    def with_half_width(self, half_width: float) -> "Estimate":
        """Return the same estimate with an interval of half so wide a logarithm."""
        low, high = (from_log(math.log(self.mean) + sign * half_width) for sign in (-1.0, 1.0))
        return replace(self, low=low, high=high)


def estimate(launches: Sequence[Launch], strategy: str) -> Estimate | None:
    """Return the step time over those of ``launches`` that timed a step; None when none did."""
    found = [each for each in launch_times(launches, strategy) if each is not None]
    if not found:
        return None
    mean = step_time(one_of_each_import(found))
    steady = [each.steady_s for each in found]
    ordered = [np.sort(rows, axis=1) for _, rows in by_length(steady)]
    median, p90, p99 = (_quantile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Estimate(
        mean=mean.value,
        low=mean.low,
        high=mean.high,
        level=mean.level,
        median=median,
        p90=p90,
        p99=p99,
        stalls=find_stalls(steady, mean.value, median, [each.excess_s for each in found]),
        steps=sum(len(each.steady_s) for each in found),
        dropped=sum(each.dropped for each in found),
        launches=found,
    )


def least_half_widths(launches: Mapping[str, Sequence[LaunchTimes]], level: float) -> dict[str, float]:
    """Return half the width that the logarithm of a step has at least, of trials too few to pool their spread.

    Launches may end in one of two states, of which three show one alone in a quarter of trials: each spreads at least
    as all do on average. Many launches of a trial show that themselves.
    """
    repeated = {name: own for name, own in launches.items() if len(own) > 1}
    if len(repeated) < 2:  # noqa: PLR2004 - one has no mean but its own
        return {}
    degrees = np.array([len(own) - 1.0 for own in repeated.values()])
    variances = np.array([np.var([each.log_mean for each in own], ddof=1) for own in repeated.values()])
    variance, freedom = mean_variance(variances, degrees)
    critical = float(t_quantile(min(freedom, float(degrees.sum())), level))
    few = {name: own for name, own in repeated.items() if len(own) - 1 < ENOUGH}
    return {name: critical * math.sqrt(variance / len(own)) for name, own in few.items()}


def _quantile(launches: Sequence[NDArray[np.float64]], share: float) -> float:
    """Return the geometric mean of a quantile over launches, which weigh alike as they do in the step time.

    Args:
        launches: rows of their steps, from the shortest on, in an array for each number of steps.
        share: of the steps, that are shorter.
    """
    quantiles = np.concatenate([quantiles_of(ordered, share) for ordered in launches])
    return float(np.exp(np.log(quantiles).mean())) if quantiles.min() > 0.0 else 0.0


POINTS = 101
"""Most points of a distribution: one per percent, from the shortest step to the longest."""


def step_time_quantiles(launches: Iterable[Launch], strategy: str) -> list[tuple[float, float]]:
    """Return points ``(share, seconds)``: that share of the steady steps took at most so long.

    Steps of all launches that ended well count alike; launches may be given one by one, only their step times are
    kept. With fewer than ``POINTS`` steps there is a point per step; without any, the list is empty.
    """
    steady = [each.steady_s for each in launch_times(launches, strategy) if each is not None]
    if not steady:
        return []
    times = np.concatenate(steady)
    shares = np.linspace(0.0, 1.0, min(POINTS, len(times))) if len(times) > 1 else np.ones(1)
    return list(zip(shares.tolist(), np.quantile(times, shares).tolist(), strict=True))
