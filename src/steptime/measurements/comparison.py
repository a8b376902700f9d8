"""How much slower one trial is than another, and whether that was shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.interval import LEVEL, step_time, t_quantile
from steptime.measurements.launch_times import LaunchTimes

_FEWEST_PAIRS = 3
"""Two pairs have one degree of freedom, with which pairing costs more than it gains."""
_MOST_LAUNCHES = 1000

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
    """Standard deviation of the logarithm of the ratio of one launch each; None where launches do not show it."""
    error: float
    """Standard error of the logarithm of the ratio."""
    freedom: float
    """Degrees of freedom of ``error``."""

    @property
    def tied(self) -> bool:
        """Whether the interval holds 1: neither was shown to be faster."""
        return self.low <= 1.0 <= self.high

    def launches_to_settle(self, share: float = 0.03) -> int | None:
        """Return about how many more launches of each would make the half-width smaller than ``share``.

        0 when it is already; None when launches do not show how much they differ, or when a thousand do not suffice.
        """
        if self.spread is None:
            return None
        per_launch = 1 if self.pairs else 2
        counts = np.arange(max(self.launches, 2), _MOST_LAUNCHES, dtype=np.float64)
        reach = t_quantile(per_launch * (counts - 1), self.level) * self.spread / np.sqrt(counts)
        enough = np.flatnonzero(np.expm1(reach) < share)
        return int(counts[enough[0]]) - self.launches if len(enough) else None


def compare(slow: Sequence[LaunchTimes], fast: Sequence[LaunchTimes], level: float = LEVEL) -> Comparison:
    """Return the step time of ``slow`` divided by that of ``fast``; raises ValueError when one has no launch.

    The ratio is always that of the two step times, as ``interval.step_time`` gives them. Its logarithm is
    mean(a) - mean(b), a sum of independent parts: for each block in which both ran, a_i / n_a - b_i / n_b; for each
    other launch its own share. Each part's variance is estimated from its own kind, so drift that hits both launches
    of a block cancels; t has Satterthwaite's degrees of freedom. With the same blocks on both sides this is the
    paired t interval and exact; with no common block it is Welch's. docs/decisions/0003-interval.md has its coverage.

    Fewer than three common blocks count as none. When one trial has a single launch, it is taken to vary as the
    other does; when both have, only the steps within them can speak, and ``covers_launches`` is false.
    """
    a, b = _centres(slow), _centres(fast)
    if not a or not b:
        message = "a comparison needs at least one launch of each trial"
        raise ValueError(message)
    log_ratio = float(np.mean(list(a.values())) - np.mean(list(b.values())))
    common = sorted(a.keys() & b.keys())
    if len(common) < _FEWEST_PAIRS:
        common = []
    spread = None
    if len(a) == len(b) == 1:
        reach = float(np.hypot(_log_reach(slow, level), _log_reach(fast, level)))
        freedom = 1.0
        error = reach / float(t_quantile(freedom, level))
    else:
        variance, freedom = _total(_parts(a, b, common))
        error = float(np.sqrt(variance))
        reach = float(t_quantile(freedom, level)) * error
        spread = _spread(a, b, common)
    return Comparison(
        ratio=float(np.exp(log_ratio)),
        low=float(np.exp(log_ratio - reach)),
        high=float(np.exp(log_ratio + reach)),
        level=level,
        pairs=len(common),
        covers_launches=len(a) > 1 or len(b) > 1,
        launches=min(len(a), len(b)),
        spread=spread,
        error=error,
        freedom=freedom,
    )


def _parts(a: Mapping[int, float], b: Mapping[int, float], common: Sequence[int]) -> list[_Part]:
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


def _total(parts: Sequence[_Part]) -> _Part:
    variance = sum(part for part, _ in parts)
    uncertainty = sum(part**2 / freedom for part, freedom in parts)
    return variance, (variance**2 / uncertainty if uncertainty > 0.0 else min(freedom for _, freedom in parts))


def _spread(a: Mapping[int, float], b: Mapping[int, float], common: Sequence[int]) -> float:
    if common:
        return float(np.std([a[block] - b[block] for block in common], ddof=1))
    variances = [float(_values(each).var(ddof=1)) for each in (a, b) if len(each) > 1]
    return float(np.sqrt(2.0 * np.mean(variances)))


def _centres(launches: Sequence[LaunchTimes]) -> dict[int, float]:
    return {launch.block: launch.log_median for launch in launches}


def _values(centres: Mapping[int, float]) -> NDArray[np.float64]:
    return np.array(list(centres.values()))


def _log_reach(launches: Sequence[LaunchTimes], level: float) -> float:
    interval = step_time(launches, level=level)
    return 0.5 * float(np.log(interval.high / interval.low))
