"""Launches that are forks of one process which has imported their framework count as one launch."""

from dataclasses import replace

import numpy as np
import pytest

from steptime.statistics.interval import step_time
from steptime.statistics.launch_spread import pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes
from steptime.statistics.shared_imports import one_of_each_import

SPREAD, LEVEL = 0.17, 0.95


def a_launch(block, log, shared_import=None, error=0.0):
    return LaunchTimes(block, np.exp([log]), 0, float(log), error, shared_import=shared_import)


def forks(logs, names):
    return [a_launch(block, log, name) for block, (log, name) in enumerate(zip(logs, names, strict=True))]


def test_forks_of_one_import_are_one_launch_of_their_mean():
    (one, other) = one_of_each_import(forks([1.0, 2.0, 6.0], "aab"))

    assert (one.log_mean, other.log_mean) == (1.5, 6.0)


def test_that_launch_is_in_the_block_of_the_first_fork():
    assert [each.block for each in one_of_each_import(forks([1.0, 2.0, 6.0], "abb"))] == [0, 1]


def test_fresh_launches_stay_as_they_are():
    launches = [a_launch(block, 0.1 * block) for block in range(4)]

    assert one_of_each_import(launches) == launches


def test_a_fork_of_each_import_stays_as_it_is():
    launches = forks([1.0, 2.0, 3.0], "abc")

    assert one_of_each_import(launches) == launches


def test_what_steps_leave_open_of_a_mean_is_that_of_a_mean():
    (one,) = one_of_each_import([a_launch(0, 1.0, "a", 0.04), a_launch(1, 1.0, "a", 0.03)])

    assert one.mean_error == pytest.approx(0.025)


def test_averaging_twice_is_averaging_once():
    once = one_of_each_import(forks([1.0, 2.0, 6.0], "aab"))

    assert one_of_each_import(once) == once


def test_more_forks_of_the_same_imports_narrow_nothing_that_imports_differ_by():
    rng = np.random.default_rng(3)
    shared = SPREAD * rng.standard_normal(3)
    few = step_time(one_of_each_import(forks(shared, "abc")))
    many = step_time(one_of_each_import(forks(np.repeat(shared, 40), "a" * 40 + "b" * 40 + "c" * 40)))

    assert many.half_width == pytest.approx(few.half_width)


def test_one_import_alone_does_not_cover_other_launches():
    assert not step_time(one_of_each_import(forks([0.1, 0.2, 0.3], "aaa"))).covers_launches


def test_one_import_has_the_spread_of_the_trials_that_have_several():
    logs = SPREAD * np.random.default_rng(4).standard_normal((3, 3))
    fresh = {str(number): [a_launch(block, log) for block, log in enumerate(own)] for number, own in enumerate(logs)}
    spreads = pool_spread({**fresh, "forked": one_of_each_import(forks([0.0, 0.0, 0.0], "aaa"))})

    assert spreads["forked"].variance > 0.5 * SPREAD**2


@pytest.mark.parametrize("plan", [(1, 1, 1, 1, 1), (1, 2, 2), (2, 2, 2), (4, 4)], ids=str)
@pytest.mark.parametrize("between", [0.0, 0.28, 0.97])
def test_intervals_hold_the_truth_whatever_part_of_the_spread_imports_have(between, plan):
    """95 % are promised, with a standard error of 0.5 %; where forks count as fresh launches it is 70 % at worst."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(250):
        trials = {str(number): one_of_each_import(_drawn(rng, between, plan)) for number in range(8)}
        spreads = pool_spread(trials)
        for name, own in trials.items():
            share = {(each.block, 0): 1.0 / len(own) for each in own}
            half = pooled_error([(spreads[name], share)], LEVEL).half_width
            held.append(abs(np.mean([each.log_mean for each in own])) <= half)
    assert np.mean(held) >= 0.93


def _drawn(rng, between, plan):
    names = [name for name, count in zip("abcdef", plan, strict=False) for _ in range(count)]
    shared = dict(zip("abcdef", SPREAD * np.sqrt(between) * rng.standard_normal(6), strict=True))
    own = SPREAD * np.sqrt(1.0 - between) * rng.standard_normal(len(names))
    return forks([shared[name] + each for name, each in zip(names, own, strict=True)], names)


def test_a_launch_keeps_the_name_of_its_import():
    (one,) = one_of_each_import([replace(a_launch(0, 1.0), shared_import="pytorch-1")])

    assert one.shared_import == "pytorch-1"
