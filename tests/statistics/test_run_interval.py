"""Intervals of means within one run: how often they hold the truth, how wide they are, and where they end."""

import numpy as np
import pytest
from correlation import correlated

from steptime.statistics.interval import difference_within, mean_within, median_within, more_values, t_quantile


def bounds_of(values):
    """Return the bounds of each row's mean."""
    return np.array([(found.low, found.high) for found in map(mean_within, values)]).T


@pytest.mark.parametrize("count", [8, 20, 64])
def test_it_is_at_most_1_3_times_as_wide_as_student_s_of_independent_values(count):
    values = 100.0 + 20.0 * correlated(np.random.default_rng(count), (1000, count), 0.0)
    low, high = bounds_of(values)
    student = 2.0 * t_quantile(count - 1, 0.95) * values.std(axis=1, ddof=1) / np.sqrt(count)
    assert (high - low).mean() < 1.3 * student.mean()
    assert np.mean((low <= 100.0) & (high >= 100.0)) == pytest.approx(0.96, abs=0.02)


@pytest.mark.parametrize(("count", "phi", "least"), [(8, 0.3, 0.90), (20, 0.3, 0.92), (20, 0.6, 0.92), (64, 0.6, 0.93)])
def test_it_covers_where_neighbours_hang_together(count, phi, least):
    """1000 repetitions tell 0.7 %; benchmarks/core/run-interval.csv has all cells."""
    low, high = bounds_of(100.0 + 20.0 * correlated(np.random.default_rng(count), (1000, count), phi))
    assert least <= np.mean((low <= 100.0) & (high >= 100.0)) <= 0.985


def test_no_bound_of_values_that_are_not_negative_is():
    rng = np.random.default_rng(4)
    values = np.maximum(0.0, rng.normal(-1.0, 1.0, (200, 8)))
    low, high = bounds_of(values)
    means = values.mean(axis=1)
    assert np.all((low >= 0.0) & (low <= means) & (means <= high))


def test_a_single_wait_among_eight_steps_may_be_none():
    assert mean_within(np.array([0.0] * 7 + [1.0])).low == 0.0


def test_a_difference_may_be_negative():
    found = difference_within(np.array([-1.0, 1.0] * 10))
    assert found.low == pytest.approx(-found.high)
    assert found.low < 0.0


def test_equal_values_leave_no_doubt():
    assert mean_within(np.full(8, 2.0)) == mean_within(np.full(80, 2.0))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_than_four_values_have_no_bounds(count):
    for found in (mean_within(np.arange(count)), difference_within(np.arange(count)), median_within(np.arange(count))):
        assert found.low is found.high is None


def test_a_median_ignores_how_long_the_longest_step_is():
    values = np.random.default_rng(2).uniform(1.0, 2.0, 60)
    longer = np.where(values == values.max(), 1000.0, values)
    assert median_within(values) == median_within(longer)
    assert 1.0 < median_within(values).low < median_within(values).value < median_within(values).high < 2.0


def test_four_times_the_values_halve_an_interval():
    found = difference_within(correlated(np.random.default_rng(1), (40,), 0.0) + 10.0)
    relative = (found.high - found.low) / 2.0 / found.value
    assert more_values(found, 40, relative / 2.0) == pytest.approx(120, abs=1)
