"""Speed-ups from few runs: their intervals hold, and those of all counts together are narrower than those of pairs."""

import numpy as np
import pytest

from steptime.results.json_form import IntervalOverLaunches
from steptime.scaling.speedup import MOST_UNKNOWN, NARROW, enough_runs, half_width, ratios
from steptime.statistics.comparison import compare
from steptime.statistics.launch_times import LaunchTimes

SIMULATED = 400


def launches(logs):
    return [LaunchTimes(block, np.ones(3), 0, float(value), 0.0) for block, value in enumerate(logs)]


def drawn(rng, spreads, rounds, drift=0.0):
    """Runs of as many numbers of workers as there are spreads; all take a second but for chance."""
    common = rng.normal(0.0, drift, rounds)
    return [launches(common + rng.normal(0.0, spread, rounds)) for spread in spreads]


@pytest.mark.parametrize(
    ("spreads", "drift", "least"),
    [
        ((0.1, 0.1), 0.0, 0.92),
        ((0.1, 0.1), 0.2, 0.92),
        ((0.4, 0.1), 0.0, 0.88),
        ((0.4, 0.1), 0.1, 0.90),
    ],
)
@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_intervals_of_two_counts_hold_the_ratio(spreads, drift, least, rounds):
    rng = np.random.default_rng(5)
    pairs = [ratios(drawn(rng, spreads, rounds, drift))[1] for _ in range(SIMULATED)]
    assert np.mean([ratio.low <= 1.0 <= ratio.high for ratio in pairs]) >= least


@pytest.mark.parametrize("limit", [NARROW, MOST_UNKNOWN])
@pytest.mark.parametrize(("spread", "counts"), [(0.05, 2), (0.2, 3)])
def test_intervals_hold_the_ratio_where_they_decide_how_many_rounds_there_are(spread, counts, limit):
    rng = np.random.default_rng(7)
    held = []
    for _ in range(SIMULATED // 4):
        runs = drawn(rng, [spread] * counts, 10)
        shown = [ratios([own[:known] for own in runs])[-1] for known in range(3, 11)]
        last = next((ratio for ratio in shown if half_width(ratio) <= limit), shown[-1])
        held.append(last.low <= 1.0 <= last.high)
    assert np.mean(held) >= 0.85


@pytest.mark.parametrize("counts", [2, 3])
def test_three_rounds_know_more_together_than_as_pairs(counts):
    rng = np.random.default_rng(6)
    runs = [drawn(rng, [0.1] * counts, 3) for _ in range(60)]
    pooled = np.median([half_width(ratios(own)[-1]) for own in runs])
    paired = np.median([half_width(compare(own[-1], own[0]).interval) for own in runs])
    assert pooled < 0.9 * paired


def test_what_slows_whole_rounds_leaves_the_ratio_of_two_counts_known():
    runs = drawn(np.random.default_rng(9), (0.01, 0.01), 3, drift=0.5)
    assert np.ptp([run.log_mean for run in runs[0]]) > 0.3
    assert half_width(ratios(runs)[1]) < 0.15


def test_the_first_count_is_its_own_measure():
    runs = drawn(np.random.default_rng(8), (0.1, 0.1), 3)
    assert ratios(runs)[0] == IntervalOverLaunches(1.0, 1.0, 1.0)
    assert ratios(runs[:1]) == [IntervalOverLaunches(1.0, 1.0, 1.0)]


@pytest.mark.parametrize(
    ("runs", "width", "needed"),
    [(1, float("inf"), 3), (1, 0.1, 3), (3, MOST_UNKNOWN * 2, 12), (3, MOST_UNKNOWN * 1.01, 4)],
)
def test_the_runs_asked_for_grow_with_the_square_of_the_interval(runs, width, needed):
    assert enough_runs(runs, width) == needed


def test_one_run_each_has_no_interval():
    [_, ratio] = ratios([launches([0.0]), launches([0.1])])
    assert ratio.low is None
    assert half_width(ratio) == float("inf")
