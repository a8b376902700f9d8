"""The points that a distribution of step times is drawn from."""

import numpy as np
import pytest
from launches import launch, steady

from steptime.statistics.estimate import POINTS, step_time_quantiles

TIMES = [steady(seed, 0.01, 200) for seed in range(3)]
LAUNCHES = [launch("t", number, times) for number, times in enumerate(TIMES)]


def test_there_is_a_point_per_percent_at_most():
    assert len(step_time_quantiles(LAUNCHES, "single")) == POINTS == 101


def test_few_steps_have_a_point_each():
    assert len(step_time_quantiles([launch("t", 0, [0.01, 0.02, 0.03])], "single")) == 3


def test_the_middle_is_the_median_over_the_steps_of_all_launches():
    middle = dict(step_time_quantiles(LAUNCHES, "single"))[0.5]

    assert middle == pytest.approx(np.median(np.concatenate(TIMES)), rel=0.005)


def test_shares_and_times_never_fall():
    shares, times = zip(*step_time_quantiles(LAUNCHES, "single"), strict=True)

    assert np.all(np.diff(shares) > 0)
    assert np.all(np.diff(times) >= 0)


def test_steps_before_a_launch_is_steady_are_left_out():
    slow_start = np.concatenate([np.full(30, 0.5), steady(1, 0.01, 300)])
    _, longest = step_time_quantiles([launch("t", 0, slow_start)], "single")[-1]

    assert longest < 0.1


def test_launches_that_failed_are_left_out():
    assert step_time_quantiles([launch("t", 0, [], status="failed")], "single") == []
