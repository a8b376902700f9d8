"""How much longer the steps of more workers are, with an interval from the runs of all numbers of workers.

Two or three runs of one number of workers hardly show how much runs differ, those of all numbers together do: from
three numbers on their spread is pooled as that of a study's trials is (docs/decisions/0011-pooled-spread.md). Two
numbers are compared by the pairs of each round, which what slows a whole round leaves alone, and by one spread of all
runs, which knows twice as much of it: the narrower interval counts, each of a level so high that, simulated, it then
holds the truth in 93 % (spreads that differ four times) to 96 %. With three rounds it is a third narrower than pairs.
"""

from collections.abc import Sequence

import numpy as np

from steptime.results.json_form import IntervalOverLaunches
from steptime.statistics.comparison import compare
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.statistics.launch_spread import FEWEST_TRIALS, pool_spread
from steptime.statistics.launch_times import LaunchTimes

MOST_UNKNOWN = float(np.log(2.0)) / 2.0
"""Half the width of the logarithm of a measured speed-up, above which nothing is forecast from it."""
NARROW = float(np.log(1.2)) / 2.0
"""That a budget adds rounds for. The intervals that end them hold the truth in 90 % and more, simulated."""
_FEW_RUNS = 3
_PAIRS = 3
"""Fewer rounds are not compared as pairs."""
_LEVEL_OF_BOTH = 0.965
"""Of two intervals of which the narrower counts."""


def ratios(launches: Sequence[Sequence[LaunchTimes]]) -> list[IntervalOverLaunches]:
    """Return the step of each number of workers over that of the first, with its interval of 95 %.

    Args:
        launches: of each number of workers; there must be one of each.
    """
    spreads = pool_spread({str(place): runs for place, runs in enumerate(launches)})
    if len(spreads) >= FEWEST_TRIALS:
        known = [
            compare(runs, launches[0], spreads=(spreads[str(place)], spreads["0"])).interval
            for place, runs in enumerate(launches)
        ]
    else:
        known = [_compare_two(runs, launches[0]) for runs in launches]
    return [IntervalOverLaunches(1.0, 1.0, 1.0), *known[1:]]


def _compare_two(one: Sequence[LaunchTimes], other: Sequence[LaunchTimes]) -> IntervalOverLaunches:
    """Return the ratio of two numbers of workers, with the narrower of both intervals."""
    if min(len(one), len(other)) == 1:
        return compare(one, other).interval
    if len({run.block for run in one} & {run.block for run in other}) < _PAIRS:
        return _compare_alike(one, other, LEVEL)
    intervals = [compare(one, other, _LEVEL_OF_BOTH).interval, _compare_alike(one, other, _LEVEL_OF_BOTH)]
    return min(intervals, key=half_width)


def _compare_alike(one: Sequence[LaunchTimes], other: Sequence[LaunchTimes], level: float) -> IntervalOverLaunches:
    """Return a ratio with the interval of Student's t for two groups that spread alike."""
    ratio = compare(one, other).interval
    logs = [np.array([run.log_mean for run in runs]) for runs in (one, other)]
    freedom = sum(len(values) - 1 for values in logs)
    variance = sum((len(values) - 1) * float(values.var(ddof=1)) for values in logs) / freedom
    error = np.sqrt(variance * sum(1.0 / len(values) for values in logs))
    width = float(t_quantile(freedom, level) * error)
    low, high = (ratio.value * float(np.exp(sign * width)) for sign in (-1.0, 1.0))
    return IntervalOverLaunches(ratio.value, low, high, ratio.least, ratio.most)


def half_width(speedup: IntervalOverLaunches) -> float:
    """Return half the width of the logarithm of a measured ratio; infinity if its interval is not known."""
    if speedup.low is None or speedup.high is None or speedup.low <= 0.0:
        return float("inf")
    return float(np.log(speedup.high / speedup.low)) / 2.0


def enough_runs(runs: int, width: float) -> int:
    """Return how many runs would about suffice for a forecast.

    Args:
        runs: of each number of workers, that were made.
        width: half that of the logarithm of their speed-up, which narrows with the root of their number at least.
    """
    if runs < 2 or not np.isfinite(width):  # noqa: PLR2004 - one run shows no spread
        return _FEW_RUNS
    return max(runs + 1, _FEW_RUNS, int(np.ceil(runs * (width / MOST_UNKNOWN) ** 2)))
