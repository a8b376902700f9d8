"""Which pairs further launches are for, and that launches given to them alone leave claims as true as before."""

import sys
from pathlib import Path

import numpy as np
import pytest

from steptime.statistics.launch_times import LaunchTimes
from steptime.statistics.undecided_pairs import undecided_pairs

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "core"))
import adaptive_launches


def launches(*logs):
    return [LaunchTimes(block, np.exp([log]), 0, log, 0.0) for block, log in enumerate(logs)]


STUDY = {
    "a": launches(0.000, 0.021, -0.013),
    "b": launches(0.036, 0.002, 0.015),
    "c": launches(0.004, -0.015, 0.022),
    "d": launches(0.507, 0.481, 0.510),
}


def test_pairs_that_are_told_apart_are_none_of_them_and_the_nearest_is_first():
    pairs = undecided_pairs(STUDY, ["abcd"])
    assert {pair.trials for pair in pairs} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert pairs[-1].trials == ("a", "c")
    assert [pair.distance for pair in pairs] == sorted((pair.distance for pair in pairs), reverse=True)
    assert all(0.0 <= pair.distance <= 1.0 for pair in pairs)


def test_fewer_launches_are_needed_where_trials_are_farther_apart():
    needed = {pair.trials: pair.needed or 1000 for pair in undecided_pairs(STUDY, ["abcd"])}
    assert 0 < needed["a", "b"] < needed["a", "c"]


@pytest.mark.parametrize("groups", [["ab", "cd"], ["a", "b", "cd"], []])
def test_trials_of_different_groups_are_no_pair(groups):
    pairs = {pair.trials for pair in undecided_pairs(STUDY, groups)}
    assert pairs == ({("a", "b")} if "ab" in groups else set())


def test_what_was_not_launched_is_in_no_pair():
    pairs = undecided_pairs({**STUDY, "a": []}, ["abcd"])
    assert {pair.trials for pair in pairs} == {("b", "c")}


@pytest.mark.parametrize("seed", [1])
def test_launches_for_undecided_trials_alone_call_equal_trials_different_no_more_often(seed):
    rng = np.random.default_rng(seed)
    studies = [0.02 * rng.standard_normal((adaptive_launches.TRIALS, 24)) for _ in range(40)]
    shares, covered = {}, {}
    for way in ("turns", "open"):
        races = [adaptive_launches.run(logs, 6, way) for logs in studies]
        shares[way] = np.mean([any(abs(each) > 1.0 for each in race.distances().values()) for race in races])
        covered[way] = np.mean([race.covered(np.zeros(adaptive_launches.TRIALS)) for race in races])
    assert shares["open"] <= shares["turns"] + 0.05
    assert covered["open"] >= 0.9
