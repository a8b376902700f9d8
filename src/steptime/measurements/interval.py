"""The interval of a trial's step time over launches and the steps within them, by Student's t distribution.

Resampling a series in blocks, so that neighbours which hang together stay together. The stopping rule: when a trial has
been launched often enough.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy ships no types

from steptime.measurements.json_form import Interval
from steptime.measurements.launch_times import LaunchTimes, launch_times, mean_errors, without_period
from steptime.measurements.records import Launch
from steptime.study.trial import Trial

_CHUNK = 1 << 21
"""Values resampled at once: 16 MiB of them, and as much again for their indices."""

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Reduces the last axis."""


def block_length(series: NDArray[np.float64]) -> float:
    """Return the mean length of the blocks that suits ``series`` best, for the stationary bootstrap.

    The automatic choice of Politis and White (Econometric Reviews 23, 2004) as corrected by Patton, Politis and
    White (28, 2009): b = (2 G² / D)^(1/3) n^(1/3), with G = sum |k| R(k), D = 2 (sum R(k))², the autocovariances R
    weighted by a flat-top window whose width is twice the last lag that is significant.
    """
    size = len(series)
    centred = series - series.mean()
    if size < 4 or not np.any(np.abs(centred) > 0.0):  # noqa: PLR2004 - no lag to look at
        return 1.0
    run = max(5, int(np.ceil(np.sqrt(np.log10(size)))))
    last = min(size - 1, int(np.ceil(np.sqrt(size))) + run)
    covariance = _autocovariance(centred, last)
    limit = 2.0 * np.sqrt(np.log10(size) / size)
    small = np.abs(covariance[1:] / covariance[0]) < limit
    width = min(2 * max(_first_quiet(small, run), 1), last)
    lags = np.arange(-width, width + 1)
    weights = np.minimum(1.0, 2.0 * (1.0 - np.abs(lags) / width))
    weighted = weights * covariance[np.abs(lags)]
    spread = 2.0 * weighted.sum() ** 2
    if spread <= 0.0:
        return 1.0
    length = (2.0 * (np.abs(lags) * weighted).sum() ** 2 / spread) ** (1 / 3) * size ** (1 / 3)
    return float(np.clip(length, 1.0, np.ceil(min(3.0 * np.sqrt(size), size / 3.0))))


def stationary_bootstrap(
    series: NDArray[np.float64], statistic: Statistic, replicates: int, length: float, seed: int
) -> NDArray[np.float64]:
    """Return ``statistic`` of ``replicates`` resampled series.

    The series is closed to a ring and cut into blocks that begin anywhere and whose lengths are geometric with mean
    ``length`` steps, which keeps the resampled series stationary. Politis and Romano, JASA 89 (1994) 1303.
    """
    rng = np.random.default_rng(seed)
    parts = [statistic(series[indices]) for indices in _indices(rng, len(series), replicates, length)]
    return np.concatenate(parts)


def _indices(rng: np.random.Generator, size: int, replicates: int, length: float) -> Iterator[NDArray[np.int64]]:
    at_once = max(1, min(replicates, _CHUNK // size))
    for done in range(0, replicates, at_once):
        rows = min(at_once, replicates - done)
        total = rows * size
        begins = rng.random(total, dtype=np.float32) < 1.0 / length
        begins[::size] = True
        first = np.flatnonzero(begins)
        # A block that begins at position p of the output with step s of the series adds s - p to each position.
        shifts = rng.integers(0, size, len(first)) - first
        lengths = np.diff(first, append=total)
        yield ((np.arange(total) + np.repeat(shifts, lengths)) % size).reshape(rows, size)


def _autocovariance(centred: NDArray[np.float64], last: int) -> NDArray[np.float64]:
    size = len(centred)
    padded = 1 << (2 * size - 1).bit_length()
    spectrum = np.fft.rfft(centred, n=padded)
    products: NDArray[np.float64] = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, n=padded)
    return products[: last + 1] / size


def _first_quiet(small: NDArray[np.bool_], run: int) -> int:
    """The lag before the first ``run`` autocorrelations in a row that are small, or else the last that is not."""
    if len(small) >= run:
        sums = np.convolve(small, np.ones(run, dtype=np.int64), mode="valid")
        quiet = np.flatnonzero(sums == run)
        if len(quiet):
            return int(quiet[0])
    loud = np.flatnonzero(~small)
    return int(loud[-1]) + 1 if len(loud) else 1


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


_IN_A_ROW = 2
"""How many launches in a row must leave the half-width under the target."""


@dataclass(frozen=True)
class Decision:
    """Whether to stop, and the relative half-width that was reached; None with fewer than two launches."""

    stop: bool
    half_width: float | None


def suffices(trial: Trial, launches: Sequence[Launch], target: float) -> bool:
    """Say whether the launches of ``trial`` that ended well give its step time within ``target`` (0.01: 1 %).

    The study's least and greatest number of launches are the schedule's business.
    """
    located = [_located(_Key(launch, trial.strategy)) for launch in launches if launch.status == "ok"]
    return decide([each for each in located if each is not None], target).stop


def decide(located: Sequence[tuple[float, float]], target: float) -> Decision:
    """Decide from each launch's log step time and its standard error within the launch, in order.

    Looking after every launch and stopping at the first narrow interval prefers launches that lie close together by
    luck, and so ends with intervals that are too narrow: with 3 to 10 launches, 91 % of them hold the truth instead
    of 95 %. Two rules give most of that back (to 93 % at worst, 95 % where launches hardly differ): for this decision
    the spread between launches counts at least as much as the spread within them, and the target must have been
    reached after the launch before as well. tests/measurements/test_stopping.py holds the rule to that.

    Args:
        located: one pair per launch.
        target: the relative half-width that is wanted.
    """
    count = len(located)
    widths = [_half_width(located[:each]) for each in range(max(2, count + 1 - _IN_A_ROW), count + 1)]
    stop = len(widths) == _IN_A_ROW and max(widths) < target
    return Decision(stop, widths[-1] if widths else None)


def _half_width(located: Sequence[tuple[float, float]]) -> float:
    centres, errors = np.array(located).T
    count = len(centres)
    spread = max(centres.std(ddof=1), float(np.sqrt(np.mean(errors**2))))
    return float(np.expm1(t_quantile(count - 1, LEVEL) * spread / np.sqrt(count)))


class _Key:
    """A launch that can be looked up: its number identifies it."""

    def __init__(self, launch: Launch, strategy: str) -> None:
        self.launch = launch
        self.strategy = strategy
        self._identity = (launch.trial, launch.launch, launch.started_at, strategy)

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


# The schedule asks again after every launch of every trial, and a launch does not change.
@lru_cache(maxsize=4096)
def _located(key: _Key) -> tuple[float, float] | None:
    (times,) = launch_times([key.launch], key.strategy)
    return None if times is None else (times.log_mean, times.mean_error)
