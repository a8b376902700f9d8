"""How much slower one trial is than another, and whether that was shown.

How large a change has to be for a comparison of two trials to show it.

An interval that holds 1 shows no difference, which is little to know of an interval that is wide. The smallest change
that the same launches would have shown with a given power is how much "no difference" excludes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.results.json_form import IntervalOverLaunches
from steptime.statistics.interval import LEVEL, from_log, step_time
from steptime.statistics.launch_spread import TrialSpread, pooled_error, satterthwaite
from steptime.statistics.launch_times import LaunchTimes, by_block
from steptime.statistics.simultaneous import critical_value, scale_density, sidak_level
from steptime.study.trial import Trial

_FEWEST_PAIRS = 3
"""Two pairs have one degree of freedom, with which pairing costs more than it gains."""
_MOST_LAUNCHES = 1000

Block = tuple[int, int]
"""Its number, and how many launches of the same trial are in it before this one."""
_Part = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True)
class Comparison:
    """The ratio of two step times with its interval."""

    ratio: float
    low: float
    high: float
    level: float
    pairs: int
    """Launches compared within the same block; 0 when the trials were compared as a whole."""
    covers_launches: bool
    """Whether the interval includes how launches differ from each other."""
    launches: int
    """Of the trial that has fewer."""
    spread: float | None
    """Standard deviation of the logarithm of the ratio of one launch each; None if launches do not show it, or if more
    of them would not narrow the interval."""
    error: float
    """Standard error of the logarithm of the ratio."""
    freedom: float
    """Degrees of freedom of ``error``."""
    least: float
    most: float
    """Smallest and largest ratio seen: of launches of one block where there are such, else of any two launches."""
    prior_freedom: float = 0.0
    """Degrees of freedom that other trials of the study contribute."""
    family: int = 2
    """Trials whose comparisons are simultaneous at ``level``; 2 for a comparison by itself."""

    @property
    def interval(self) -> IntervalOverLaunches:
        """The ratio with its interval and the range seen, as reports have it."""
        low, high = (self.low, self.high) if self.covers_launches else (None, None)
        return IntervalOverLaunches(self.ratio, low, high, self.least, self.most)

    @property
    def tied(self) -> bool:
        """Whether the interval holds 1: neither was shown to be faster."""
        return self.low <= 1.0 <= self.high

    @property
    def undecided(self) -> bool:
        """Whether neither was shown to be faster, by an interval that holds 1 or knows one launch only."""
        return self.tied or not self.covers_launches

    def launches_to_settle(self, share: float = 0.03) -> int | None:
        """Return about how many more launches of each would make the half-width smaller than ``share``.

        0 when it is already; None when launches do not show how much they differ, or when a thousand do not suffice.
        """
        if self.spread is None:
            return None
        per_launch = 1 if self.pairs else 2
        counts = np.arange(max(self.launches, 2), _MOST_LAUNCHES, dtype=np.float64)
        half_width = (
            critical_value(self.prior_freedom + per_launch * (counts - 1), self.level, self.family)
            * self.spread
            / np.sqrt(counts)
        )
        enough = np.flatnonzero(half_width < np.log1p(share))
        return int(counts[enough[0]]) - self.launches if len(enough) else None


@dataclass(frozen=True)
class Measured:
    """A trial with its launches, and how these spread where that was pooled over the study."""

    trial: Trial
    launches: Sequence[LaunchTimes]
    spread: TrialSpread | None = None


def compare_trials(slow: Measured, fast: Measured, level: float = LEVEL, family: int | None = None) -> Comparison:
    """Return the step time of ``slow`` divided by that of ``fast``, with the pooled spread where both have it.

    Args:
        slow: one trial.
        fast: the other.
        level: the share of such intervals that hold the truth.
        family: as ``compare`` has it.
    """
    spreads = (slow.spread, fast.spread) if slow.spread and fast.spread else None
    return compare(slow.launches, fast.launches, level, spreads, family)


def compare(  # noqa: PLR0913 - how it is compared, and at what level, beside the two
    slow: Sequence[LaunchTimes],
    fast: Sequence[LaunchTimes],
    level: float = LEVEL,
    spreads: tuple[TrialSpread, TrialSpread] | None = None,
    family: int | None = None,
    *,
    apart: bool = False,
) -> Comparison:
    """Return the step time of ``slow`` divided by that of ``fast``; raises ValueError when one has no launch.

    The ratio is always that of the two step times, as ``interval.step_time`` gives them. Its logarithm is
    mean(a) - mean(b), a sum of independent parts: for each block in which both ran, a_i / n_a - b_i / n_b; for each
    other launch its own share. Each part's variance is estimated from its own kind, so drift that hits both launches
    of a block cancels; t has Satterthwaite's degrees of freedom. With the same blocks on both sides this is the
    paired t interval and exact; with no common block it is Welch's. docs/decisions/0018-mean-step.md has more.

    Fewer than three common blocks count as none. When one trial has a single launch, it is taken to vary as the
    other does; when both have, only the steps within them can speak, and ``covers_launches`` is false.

    Where launches ran on several sites (sets of hosts), which may differ in speed, only those of common blocks are
    compared, each of which ran on one site; the ratio is then not that of the two step times. Without a common block
    all launches are compared, and ``share_blocks`` excludes that.

    With ``spreads``, how launches spread is pooled over the trials of the study (docs/decisions/0011-pooled-spread.md):
    the same sum of launches, with its variance from there.

    With ``family``, the number of trials that are compared with each other, the intervals of all their differences
    are simultaneous at ``level`` (docs/decisions/0017-simultaneous.md), so also that with the one that seems best.

    With ``apart``, all launches of one trial ran at another time than all of the other. Launches of one time may be
    alike as those of two times are not, and a machine that drifts is taken for a change by any interval that narrows
    with their number (benchmarks/compare). So their variance does not average out: that of a single launch of each
    counts, or, of pooled spreads, that of a single block.
    """
    slow, fast = sharing_blocks(slow, fast)
    a, b = _centres(slow), _centres(fast)
    if not a or not b:
        message = "a comparison needs at least one launch of each trial"
        raise ValueError(message)
    log_ratio = float(np.mean(list(a.values())) - np.mean(list(b.values())))
    common = sorted(a.keys() & b.keys())
    seen = [(block, block) for block in common] or [(one, other) for one in a for other in b]
    ratios = [a[one] - b[other] for one, other in seen]
    if len(common) < _FEWEST_PAIRS and spreads is None:
        common = []
    means = family or 2
    if spreads is not None:
        error = _pooled(a, b, spreads, level, family, apart=apart)
    elif len(a) == len(b) == 1:
        error = _within_launches(slow, fast, level, means)
    else:
        error = _between_launches(a, b, common, level, means, apart=apart)
    return Comparison(
        ratio=from_log(log_ratio),
        low=from_log(log_ratio - error.half_width),
        high=from_log(log_ratio + error.half_width),
        level=level,
        pairs=len(common),
        covers_launches=spreads is not None or len(a) > 1 or len(b) > 1,
        launches=min(len(a), len(b)),
        spread=error.spread,
        error=error.error,
        freedom=error.freedom,
        least=from_log(min(ratios)),
        most=from_log(max(ratios)),
        prior_freedom=0.0 if spreads is None else min(spread.prior_freedom for spread in spreads),
        family=means,
    )


class _LogError(NamedTuple):
    """Of the logarithm of a ratio."""

    half_width: float
    error: float
    """Its standard error."""
    freedom: float
    spread: float | None
    """Standard deviation of the logarithm of one launch's ratio; None if unknown."""


def _pooled(  # noqa: PLR0913 - as ``compare`` has them
    a: Mapping[Block, float],
    b: Mapping[Block, float],
    spreads: tuple[TrialSpread, TrialSpread],
    level: float,
    family: int | None,
    *,
    apart: bool,
) -> _LogError:
    """Return the error by how launches of all trials of a study spread."""
    shares: list[dict[Hashable, float]] = [dict.fromkeys(a, 1.0 / len(a)), dict.fromkeys(b, -1.0 / len(b))]
    sessions: dict[Hashable, int] | None = {**dict.fromkeys(a, 0), **dict.fromkeys(b, 1)} if apart else None
    pooled = pooled_error(list(zip(spreads, shares, strict=True)), level, family, sessions)
    spread = None if apart else float(np.sqrt(sum(trial.variance for trial in spreads)))
    return _LogError(pooled.half_width, pooled.error, pooled.freedom, spread)


def _within_launches(slow: Sequence[LaunchTimes], fast: Sequence[LaunchTimes], level: float, means: int) -> _LogError:
    """Return the error of single launches, which only the steps within them show."""
    of_pair = sidak_level(level, means * (means - 1) // 2)
    half_width = float(np.hypot(_log_half_width(slow, of_pair), _log_half_width(fast, of_pair)))
    return _LogError(half_width, half_width / float(critical_value(1.0, level, means)), 1.0, None)


def _between_launches(  # noqa: PLR0913 - as ``compare`` has them
    a: Mapping[Block, float],
    b: Mapping[Block, float],
    common: Sequence[Block],
    level: float,
    means: int,
    *,
    apart: bool,
) -> _LogError:
    """Return the error by how the launches of the two spread."""
    variance, freedom = satterthwaite(_sessions(a, b) if apart else _parts(a, b, common))
    error = float(np.sqrt(variance))
    half_width = float(critical_value(freedom, level, means)) * error
    return _LogError(half_width, error, freedom, None if apart else _spread(a, b, common))


def sharing_blocks(
    one: Sequence[LaunchTimes], other: Sequence[LaunchTimes]
) -> tuple[Sequence[LaunchTimes], Sequence[LaunchTimes]]:
    """Return the launches that are compared: of several sites, those of common blocks where there are any."""
    if several_sites([*one, *other]) and (shared := _blocks(one) & _blocks(other)):
        one, other = ([each for each in own if each.block in shared] for own in (one, other))
    return one, other


def several_sites(launches: Sequence[LaunchTimes]) -> bool:
    """Say whether ``launches`` ran on more than one set of hosts."""
    return len({launch.site for launch in launches}) > 1


def share_blocks(one: Measured, other: Measured) -> bool:
    """Say whether two trials may be compared: they ran on one site only, or have a block in common."""
    launches = [*one.launches, *other.launches]
    return not several_sites(launches) or not _blocks(one.launches).isdisjoint(_blocks(other.launches))


def _blocks(launches: Sequence[LaunchTimes]) -> set[int]:
    return {launch.block for launch in launches}


def _parts(a: Mapping[Block, float], b: Mapping[Block, float], common: Sequence[Block]) -> list[_Part]:
    """The variances of the independent parts of mean(a) - mean(b), each with its degrees of freedom."""
    if min(len(a), len(b)) == 1:
        values = _values(a if len(a) > 1 else b)
        return [(float(values.var(ddof=1)) * (1.0 + 1.0 / len(values)), len(values) - 1.0)]
    parts = []
    if common:
        shares = np.array([a[block] / len(a) - b[block] / len(b) for block in common])
        parts.append((len(common) * float(shares.var(ddof=1)), len(common) - 1.0))
    for own in (a, b):
        alone = len(own) - len(common)
        if alone:
            parts.append((alone * float(_values(own).var(ddof=1)) / len(own) ** 2, len(own) - 1.0))
    return parts


def _sessions(a: Mapping[Block, float], b: Mapping[Block, float]) -> list[_Part]:
    """The variances of a launch of either, each with its degrees of freedom; a single launch varies as the others."""
    several = [_values(each) for each in (a, b) if len(each) > 1]
    parts = [(float(values.var(ddof=1)), len(values) - 1.0) for values in several]
    return parts if len(parts) > 1 else [(2.0 * parts[0][0], parts[0][1])]


def _spread(a: Mapping[Block, float], b: Mapping[Block, float], common: Sequence[Block]) -> float:
    if common:
        return float(np.std([a[block] - b[block] for block in common], ddof=1))
    variances = [float(_values(each).var(ddof=1)) for each in (a, b) if len(each) > 1]
    return float(np.sqrt(2.0 * np.mean(variances)))


def _centres(launches: Sequence[LaunchTimes]) -> dict[Block, float]:
    return {block: launch.log_mean for block, launch in by_block(launches).items()}


def _values(centres: Mapping[Block, float]) -> NDArray[np.float64]:
    return np.array(list(centres.values()))


def _log_half_width(launches: Sequence[LaunchTimes], level: float) -> float:
    interval = step_time(launches, level=level)
    return 0.5 * float(np.log(interval.high / interval.low))


POWER = 0.8
"""The probability with which the smallest detectable change would have been shown."""
_FOR_ANY_SHAPE = 0.06
"""By how much more often launches of normal noise have to show the smallest change, so that those of 17 shapes show it
in four of five cases on average: skewed noise and heavy tails show too little of themselves at first."""
_MOST_ERRORS = 1e4
"""Standard errors: a change that takes more to be shown is as good as never shown."""


def power_to_show(comparison: Comparison, change: float) -> float | None:
    """Return the probability that such launches show a change of the ratio by ``change``.

    The power of a t test, in which the change is shown if the interval excludes 1 on its side, is that of a noncentral
    distribution around log(1 + change) over the standard error. That error was itself estimated, so that its inverse
    is too large on average, and most so with few degrees of freedom. Half of this bias is taken off: promises between
    30 and 80 % are then kept to about 5 points on average from four degrees of freedom on, and higher ones are kept
    more often than was promised (benchmarks/compare).

    Args:
        comparison: whose launches and spread are taken for granted.
        change: relative, as 0.05; a negative one is a speed-up.

    Returns None if launches do not show how they differ.
    """
    if not comparison.covers_launches or comparison.error <= 0.0:
        return None
    return _power(abs(float(np.log1p(change))) / comparison.error, _critical(comparison), comparison.freedom)


def smallest_change(comparison: Comparison) -> float | None:
    """Return the smallest relative growth of the ratio that as many new launches show with ``POWER``.

    It is a multiple of the error that these launches have by luck, and the new ones have another: both are averaged.
    Normal launches show it more often, by ``_FOR_ANY_SHAPE``.

    Returns None if launches do not show how they differ.
    """
    if not comparison.covers_launches:
        return None
    if comparison.error <= 0.0:
        return 0.0
    critical, freedom = _critical(comparison), comparison.freedom
    errors = scipy.optimize.brentq(
        lambda effect: _power_anew(effect, critical, freedom) - POWER - _FOR_ANY_SHAPE, 0.0, _MOST_ERRORS, xtol=1e-6
    )
    return from_log(errors * comparison.error) - 1.0


def launches_to_show(comparison: Comparison, change: float, power: float = POWER) -> int | None:
    """Return about how many more launches of each trial would show ``change`` with ``power``; 0 if these do.

    Returns None if launches do not show how much they differ, or if a thousand do not suffice.
    """
    if comparison.spread is None:
        return None
    per_launch = 1 if comparison.pairs else 2
    counts = np.arange(max(comparison.launches, 2), _MOST_LAUNCHES, dtype=np.float64)
    freedom = comparison.prior_freedom + per_launch * (counts - 1)
    # The quantile of a noncentral t is near the critical value plus that of the central one.
    errors = critical_value(freedom, comparison.level, comparison.family) + critical_value(freedom, 2.0 * power - 1.0)
    enough = np.flatnonzero(errors * comparison.spread / np.sqrt(counts) <= abs(np.log1p(change)))
    return int(counts[enough[0]]) - comparison.launches if len(enough) else None


def _critical(comparison: Comparison) -> float:
    """Return the half-width of the interval in standard errors."""
    return 0.5 * float(np.log(comparison.high / comparison.low)) / comparison.error


def _power(effect: float, critical: float, freedom: float) -> float:
    """Return P(Z + effect > critical s), with Z standard normal and s² a mean square of so many degrees of freedom.

    The effect is taken smaller by half of what E[1 / s] exceeds 1.
    """
    freedom = max(freedom, 1.0)
    half = 0.5 * freedom
    unbiased = (
        np.exp(scipy.special.gammaln(half) - scipy.special.gammaln(half - 0.5)) / np.sqrt(half)
        if freedom > 1.0
        else 0.0
    )
    scales, weights = scale_density(freedom)
    return float(scipy.special.ndtr(0.5 * (1.0 + unbiased) * effect - critical * scales) @ weights)


def _power_anew(effect: float, critical: float, freedom: float) -> float:
    """Return P(Z + effect s > critical s'): Z is standard normal, s² and s'² are mean squares with as much freedom.

    The one is that of the comparison whose error the effect is measured by, the other that of a comparison to come.
    """
    scales, weights = scale_density(max(freedom, 1.0))
    shown = scipy.special.ndtr(effect * scales[:, None] - critical * scales) @ weights
    return float(shown @ weights)
