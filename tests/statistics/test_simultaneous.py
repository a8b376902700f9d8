import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.stats import studentized_range, t

from steptime.analysis.ablation.imbalance import blamed_worker
from steptime.analysis.accuracy import over_seeds
from steptime.statistics.comparison import compare
from steptime.statistics.launch_spread import pool_spread
from steptime.statistics.launch_times import reduce_times
from steptime.statistics.simultaneous import _spline, critical_value, sidak_level


@pytest.mark.parametrize("family", [3, 8, 20, 50])
@pytest.mark.parametrize("freedom", [1.0, 1.15, 2.6, 6.0, 14.0, 57.0, 1000.0])
def test_the_critical_value_of_several_means_is_that_of_the_studentised_range(family, freedom):
    exact = studentized_range.ppf(0.95, family, freedom) / np.sqrt(2.0)
    assert critical_value(freedom, 0.95, family) == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_where_nothing_is_interpolated_critical_values_are_exact_at_every_level(level):
    exact = [studentized_range.ppf(level, 6, freedom) / np.sqrt(2.0) for freedom in (1.0, 4.0, 80.0)]
    assert critical_value(np.array([1.0, 4.0, 80.0]), level, 6) == pytest.approx(exact, rel=1e-6)


def test_between_its_points_the_interpolation_is_the_cubic_spline_of_scipy():
    x, y = np.array([0.0, 0.3, 1.0, 1.2, 2.0]), np.array([1.0, -2.0, 0.5, 3.0, 2.0])
    places = np.linspace(0.0, 2.0, 41)
    assert _spline(x, y)(places) == pytest.approx(CubicSpline(x, y)(places), abs=1e-12)


@pytest.mark.parametrize("freedom", [1.0, 2.5, 30.0])
def test_the_critical_value_of_two_means_is_students(freedom):
    assert critical_value(freedom, 0.95) == pytest.approx(t.ppf(0.975, freedom))


def test_critical_values_of_an_array_are_those_of_its_numbers():
    freedoms = np.array([2.0, 5.0, 40.0])
    assert critical_value(freedoms, 0.95, 6) == pytest.approx([float(critical_value(one, 0.95, 6)) for one in freedoms])


@pytest.mark.parametrize("claims", [1, 2, 8, 40])
def test_independent_claims_at_sidaks_level_hold_together(claims):
    assert sidak_level(0.95, claims) ** claims == pytest.approx(0.95)


def launches(logs):
    return reduce_times([np.exp([log]) for log in logs])


def one_is_called_slower(logs, family):
    trials = {str(row): launches(each) for row, each in enumerate(logs)}
    spreads = pool_spread(trials)
    best = str(int(logs.mean(axis=1).argmin()))
    return any(
        compare(trials[name], trials[best], spreads=(spreads[name], spreads[best]), family=family).low > 1.0
        for name in trials
        if name != best
    )


def equal_trials(trials, count, threefold):
    rng = np.random.default_rng(trials * 100 + count)
    while True:
        spread = 0.02 * (3.0 ** rng.uniform(0.0, 1.0, trials) if threefold else np.ones(trials))
        yield spread[:, None] * rng.standard_normal((trials, count)) + 0.02 * rng.standard_normal(count)


@pytest.mark.sampled
@pytest.mark.parametrize(("trials", "count", "threefold"), [(3, 3, False), (8, 2, False), (8, 2, True), (20, 3, False)])
def test_a_ranking_of_equal_trials_calls_one_slower_in_one_of_twenty_studies(trials, count, threefold):
    """At most 6 %, and three standard errors of 200 studies."""
    studies = equal_trials(trials, count, threefold)
    assert np.mean([one_is_called_slower(next(studies), trials) for _ in range(200)]) <= 0.06 + 3 * 0.0168


def test_comparing_each_of_eight_equal_trials_by_itself_calls_one_slower_in_every_fourth_study():
    """The reason why rankings do not: this test shows that the one above can fail."""
    studies = equal_trials(8, 3, threefold=False)
    assert np.mean([one_is_called_slower(next(studies), None) for _ in range(100)]) > 0.25


def test_a_trial_that_is_slower_by_more_than_the_half_width_is_found():
    logs = next(equal_trials(8, 5, threefold=False))
    logs[3] += 0.25
    assert one_is_called_slower(logs, 8)


def test_more_launches_are_needed_to_settle_one_of_many_comparisons_than_a_comparison_by_itself():
    logs = next(equal_trials(8, 3, threefold=False))
    trials = {str(row): launches(each) for row, each in enumerate(logs)}
    spreads = pool_spread(trials)
    alone, together = (
        compare(trials["0"], trials["1"], spreads=(spreads["0"], spreads["1"]), family=family).launches_to_settle()
        for family in (None, 8)
    )
    assert alone < together


def test_two_single_launches_of_many_trials_compare_by_a_wider_interval_than_two_of_two():
    rng = np.random.default_rng(5)
    slow, fast = (reduce_times([rng.lognormal(0.0, 0.05, 200)]) for _ in range(2))
    widths = [np.log(found.high / found.low) for found in (compare(slow, fast), compare(slow, fast, family=8))]
    assert widths[0] < widths[1]


def test_accuracies_of_eight_schedules_are_compared_by_wider_intervals_than_those_of_two():
    two, eight = (over_seeds([0.01, 0.02, 0.03], family=family) for family in (2, 8))
    assert eight.high - eight.low > 1.5 * (two.high - two.low)


def computations(launch_effect, launches, workers, slower):
    rng = np.random.default_rng(launches * 10 + workers)
    while True:
        logs = launch_effect * rng.standard_normal((launches, workers, 1))
        logs = logs + 0.05 * rng.standard_normal((launches, workers, 60))
        logs[:, 0] += np.log(slower)
        yield list(np.exp(logs))


@pytest.mark.sampled
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("count", [2, 3])
def test_of_equal_workers_one_is_blamed_in_one_of_twenty_breakdowns(workers, count):
    """At most 5 %, and three standard errors of 300 breakdowns, with launches that make workers differ by 10 %."""
    drawn = computations(0.1, count, workers, 1.0)
    assert np.mean([blamed_worker(next(drawn)) is not None for _ in range(300)]) <= 0.05 + 3 * 0.0126


def test_a_worker_that_computes_a_fifth_longer_is_blamed_after_three_launches():
    drawn = computations(0.02, 3, 2, 1.2)
    assert np.mean([blamed_worker(next(drawn)) == 0 for _ in range(100)]) >= 0.8


def test_a_single_launch_blames_no_worker():
    assert blamed_worker(next(computations(0.0, 1, 2, 2.0))) is None
