"""The interval of a trial's step time over launches and the steps within them, by Student's t distribution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy ships no types

from steptime.measurements.bootstrap import block_length, stationary_bootstrap
from steptime.measurements.json_form import Interval
from steptime.measurements.launch_times import LaunchTimes, mean_errors, without_period


def t_quantile(freedom: float | NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Return the two-sided quantile of Student's t: that many standard errors to each side hold the share ``level``."""
    half_width: NDArray[np.float64] = stdtrit(freedom, 0.5 + 0.5 * level)
    return half_width


LEVEL = 0.95
_REPLICATES = 400
_FEWEST_REPLICATES = 100
_FEWEST_VALUES = 4
_VALUES = 20_000_000
"""Values resampled at most for one interval, as long as that leaves ``_FEWEST_REPLICATES``."""


@dataclass(frozen=True)
class StepTimeInterval:
    """An estimate in seconds with its bounds."""

    value: float
    low: float
    high: float
    level: float
    launches: int

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds, relative to the value; of a ratio scale, so (high / low)^(1/2) - 1."""
        return float(np.sqrt(self.high / self.low)) - 1.0

    @property
    def covers_launches(self) -> bool:
        """Whether the interval includes how launches differ from each other; one launch cannot show that."""
        return self.launches > 1


def step_time(launches: Sequence[LaunchTimes], level: float = LEVEL) -> StepTimeInterval:
    """Return the step time of a trial with its interval; raises ValueError without any launch.

    The step time of a launch is the mean of its steady steps, stalls and all: the seconds that they took over their
    number, so that the global batch over the step time is samples over seconds. The estimate is exp(mean of the
    logarithms of the launches' step times). Launches weigh alike, because each is one draw of what differs between
    launches (memory layout, placement, clocks), however many steps it had time for; logarithms make the estimate of
    A / B the inverse of that of B / A, and make the rate's interval that of the time.

    Two levels: the logarithm of a launch's step time is m_i = mu + L_i + e_i, with L_i what this launch had of its own
    and e_i what its limited, correlated steps and their stalls leave open. Launches are fresh processes, so the m_i are
    independent, and their spread holds both levels once, whatever the correlation of the steps:
    mu = mean(m) ± t(n - 1) sd(m) / sqrt(n), Student's t. benchmarks/core/mean-step.csv has its coverage.

    With one launch the second level is all there is: the standard error of m is the larger one of the stationary
    bootstrap and of the autocorrelations (``mean_error``), without what is regular in stalls, and t has one degree of
    freedom less than the series has stretches of three mean block lengths. Such an interval does not cover other
    launches (``covers_launches``).

    Args:
        launches: of one trial.
        level: the share of such intervals that hold the true value.
    """
    if not launches:
        message = "a step time needs at least one launch"
        raise ValueError(message)
    centres = np.array([launch.log_mean for launch in launches])
    if len(centres) == 1:
        centre, half_width = centres[0], _half_width_within(launches[0], level)
    else:
        centre, half_width = centres.mean(), float(half_width_between(centres, level))
    return StepTimeInterval(
        value=float(np.exp(centre)),
        low=float(np.exp(centre - half_width)),
        high=float(np.exp(centre + half_width)),
        level=level,
        launches=len(launches),
    )


def half_width_between(centres: NDArray[np.float64], level: float = LEVEL) -> NDArray[np.float64]:
    """Return t(n - 1) sd / sqrt(n) over the last axis, which holds at least two logarithms of launches."""
    count = centres.shape[-1]
    deviation = centres.std(axis=-1, ddof=1)
    half_width: NDArray[np.float64] = t_quantile(count - 1, level) * deviation / np.sqrt(count)
    return half_width


def _half_width_within(launch: LaunchTimes, level: float) -> float:
    series = without_period(launch.steady_s, launch.period)
    error, freedom = _bootstrapped(series)
    return float(t_quantile(freedom, level) * max(error / series.mean(), launch.mean_error))


def _bootstrapped(series: NDArray[np.float64]) -> tuple[float, float]:
    """Return the standard error of the mean of a series whose neighbours hang together, and its degrees of freedom."""
    size = len(series)
    length = block_length(series)
    replicates = int(np.clip(_VALUES // size, _FEWEST_REPLICATES, _REPLICATES))
    error = float(stationary_bootstrap(series, _mean, replicates, length, seed=0).std(ddof=1))
    return error, max(1.0, size / (3.0 * length) - 1.0)


def mean_within(series: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the mean of what the steps of one run gave, with an interval that knows nothing of other runs.

    As of a single launch in ``step_time``, but on a linear scale, since a part of a step may take no time. Without
    bounds where there are fewer than four values.
    """
    value = float(series.mean())
    if len(series) < _FEWEST_VALUES:
        return Interval(value, None, None)
    error, freedom = _bootstrapped(series)
    half_width = float(t_quantile(freedom, level) * max(error, mean_errors([series])[0]))
    return Interval(value, value - half_width, value + half_width)


def _mean(times: NDArray[np.float64]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = times.mean(axis=-1)
    return means
