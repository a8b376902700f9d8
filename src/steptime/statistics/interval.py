"""The interval of a trial's step time over launches and the steps within them, by Student's t distribution.

Intervals within one run, from few steps whose neighbours hang together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.results.json_form import Interval
from steptime.statistics.launch_times import LaunchTimes, mean_errors, without_period


def t_quantile(freedom: float | NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Return the two-sided quantile of Student's t: that many standard errors to each side hold the share ``level``."""
    half_width: NDArray[np.float64] = scipy.special.stdtrit(freedom, 0.5 + 0.5 * level)
    return half_width


LEVEL = 0.95
_FARTHEST_LOG = 300.0
_FEWEST_VALUES = 4
_TOWARDS_MORE = 0.5
"""Standard errors of a correlation by which more of it is taken than was estimated, of a long series; a correlation
that is itself positive adds as many as it is, since intervals that are wide there are seldom those of independent
values."""
_LEAST_CORRELATION = -0.2
"""Fewer values show less than this only by chance. What it saves, of independent values, pays for wider intervals."""


def from_log(value: float) -> float:
    """Return the number that has a logarithm, from 1e-130 to 1e130.

    Two launches that differ tenfold put the bounds of a ratio beyond what a float can hold: Student's t of one degree
    of freedom is 191 at the level of a gate.
    """
    return exp(min(max(value, -_FARTHEST_LOG), _FARTHEST_LOG))


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

    With one launch the second level is all there is (``_half_width``), without what is regular in stalls. Such an
    interval does not cover other launches (``covers_launches``).

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
        value=from_log(centre),
        low=from_log(centre - half_width),
        high=from_log(centre + half_width),
        level=level,
        launches=len(launches),
    )


def half_width_between(centres: NDArray[np.float64], level: float = LEVEL) -> NDArray[np.float64]:
    """Return t(n - 1) sd / sqrt(n) over the last axis, which holds at least two values, a launch or run each."""
    count = centres.shape[-1]
    deviation = centres.std(axis=-1, ddof=1)
    half_width: NDArray[np.float64] = t_quantile(count - 1, level) * deviation / np.sqrt(count)
    return half_width


def _half_width_within(launch: LaunchTimes, level: float) -> float:
    series = without_period(launch.steady_s, launch.period)
    return _half_width_of_mean(series, level) / float(series.mean())


def _half_width_of_mean(series: NDArray[np.float64], level: float) -> float:
    """Return half the width of the interval of the mean of a series whose neighbours hang together.

    Student's t, with the standard error that the series has if each value takes the share r of the deviation before
    it (``_inflation``): one number can be estimated from few values, a sum of correlations or the length of blocks
    cannot. A long series shows more than r: there the autocorrelations may widen the interval (``mean_errors``).
    benchmarks/core/run-interval.csv has coverage and width.
    """
    count = len(series)
    if count < 2:  # noqa: PLR2004 - one value has no spread
        return 0.0
    independent = float(series.std(ddof=1)) / np.sqrt(count)
    error, shown = independent * _inflation(series), mean_errors([series])[0]
    return float(t_quantile(count - 1, level) * (max(error, shown) if shown > independent else error))


def _inflation(series: NDArray[np.float64]) -> float:
    """Return by what factor the error of a mean exceeds that of independent values with the same standard deviation.

    By the correlation r of neighbours, without its bias of -(1 + 4 r) / n (Marriott and Pope, Biometrika 41 (1954)
    390), and larger (``_TOWARDS_MORE``). For n values of an autoregression, V = 1 + 2 sum (1 - k/n) r^k is the variance
    of their mean, and (n - V) / (n - 1) the mean of their squared standard deviation, each over that of independent
    ones. Few values cannot show a correlation near 1: it is taken as 1 - 4/n at most.

    The constants were chosen by simulation of other counts, shapes and seeds than benchmarks/core/run_interval.py has.
    """
    count = len(series)
    most = 1.0 - _FEWEST_VALUES / count
    deviations = series - series.mean()
    squares = float(deviations @ deviations)
    if most <= 0.0 or squares <= 0.0:
        return 1.0
    seen = float(deviations[1:] @ deviations[:-1]) / squares
    unbiased = (count * seen + 1.0) / (count - 4.0)
    error = most * np.sqrt(max(0.0, 1.0 - seen**2) / count)
    r = float(np.clip(unbiased + (_TOWARDS_MORE + np.clip(unbiased, 0.0, 1.0)) * error, _LEAST_CORRELATION, most))
    variance = (1.0 + r) / (1.0 - r) - 2.0 * r * (1.0 - r**count) / (count * (1.0 - r) ** 2)
    return float(np.sqrt(variance * (count - 1.0) / (count - variance)))


def effective_count(series: NDArray[np.float64]) -> float:
    """Return how many independent values tell as much of a mean as a series whose neighbours hang together."""
    return len(series) / max(1.0, _inflation(series)) ** 2


def mean_within(series: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the mean of what the steps of one run took, with an interval that knows nothing of other runs.

    Values and bounds are not negative: the interval is symmetric in the square root of the mean, which moves it up by
    what few skewed values need. Without bounds where there are fewer than four values.
    """
    value = float(series.mean())
    if len(series) < _FEWEST_VALUES:
        return Interval(value, None, None)
    half = 0.5 * _half_width_of_mean(series, level) / value if value > 0.0 else 0.0
    return Interval(value, value * max(0.0, 1.0 - half) ** 2, value * (1.0 + half) ** 2)


def difference_within(series: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the mean of values of one run that may be negative, with an interval as of ``mean_within``."""
    value = float(series.mean())
    if len(series) < _FEWEST_VALUES:
        return Interval(value, None, None)
    half_width = _half_width_of_mean(series, level)
    return Interval(value, value - half_width, value + half_width)


def more_values(found: Interval, count: int, within: float) -> int:
    """Return how many values more would bring half the interval of ``count`` values to a share of the mean."""
    if found.low is None or found.high is None or found.value <= 0.0:
        return 0
    relative = (found.high - found.low) / (2.0 * found.value)
    return max(0, int(np.ceil(count * (relative / within) ** 2)) - count)


def median_within(series: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the median of the steps of one run, with bounds that are values of the series: a sign test, inverted."""
    value = float(np.median(series))
    if len(series) < _FEWEST_VALUES:
        return Interval(value, None, None)
    share = _half_width_of_mean((series > value).astype(np.float64), level)
    low, high = np.quantile(series, [max(0.0, 0.5 - share), min(1.0, 0.5 + share)])
    return Interval(value, float(low), float(high))
