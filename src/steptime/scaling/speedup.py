"""How much longer the steps of more workers are, with an interval from the runs of all numbers of workers.

Two or three runs of one number of workers hardly show how much runs differ, those of all numbers together do: from
three numbers on their spread is pooled as that of a study's trials is (docs/decisions/0011-pooled-spread.md), of two
it is the mean of both variances. Simulated, such intervals of two numbers hold the truth in 95 % (91 % where one of
them spreads four times as much as the other) and are a third narrower than those of three rounds of pairs.
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
_FEW_RUNS = 3
_PAIRS = 4
"""So many rounds show by themselves how much the ratio of two runs of a round differs."""


def ratios(launches: Sequence[Sequence[LaunchTimes]]) -> list[IntervalOverLaunches]:
    """Return the step of each number of workers over that of the first, with its interval of 95 %.

    Args:
        launches: of each number of workers; there must be one of each.
    """
    spreads = pool_spread({str(place): runs for place, runs in enumerate(launches)})
    known = []
    for place, runs in enumerate(launches):
        pair = (spreads[str(place)], spreads["0"]) if len(spreads) >= FEWEST_TRIALS else None
        ratio = compare(runs, launches[0], spreads=pair).interval
        alike = pair is None and _few_of_both(runs, launches[0])
        known.append(_of_one_spread(ratio, runs, launches[0]) if alike else ratio)
    return [IntervalOverLaunches(1.0, 1.0, 1.0), *known[1:]]


def _few_of_both(one: Sequence[LaunchTimes], other: Sequence[LaunchTimes]) -> bool:
    return min(len(one), len(other)) > 1 and len({run.block for run in one} & {run.block for run in other}) < _PAIRS


def _of_one_spread(
    ratio: IntervalOverLaunches, one: Sequence[LaunchTimes], other: Sequence[LaunchTimes]
) -> IntervalOverLaunches:
    """Return a ratio with the interval of Student's t for two groups that spread alike."""
    logs = [np.array([run.log_mean for run in runs]) for runs in (one, other)]
    freedom = sum(len(values) - 1 for values in logs)
    variance = sum((len(values) - 1) * float(values.var(ddof=1)) for values in logs) / freedom
    error = np.sqrt(variance * sum(1.0 / len(values) for values in logs))
    half_width = float(t_quantile(freedom, LEVEL) * error)
    low, high = (ratio.value * float(np.exp(sign * half_width)) for sign in (-1.0, 1.0))
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
