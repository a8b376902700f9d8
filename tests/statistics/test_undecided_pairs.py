"""Which pairs further launches are for, and that launches given to them alone leave claims as true as before."""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from steptime.statistics.comparison import compare
from steptime.statistics.launch_spread import pool_spread
from steptime.statistics.launch_times import LaunchTimes, in_turns
from steptime.statistics.undecided_pairs import UndecidedPair, settled_within, undecided_pairs, undecided_trials

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


NEAR, FAR = UndecidedPair(("a", "b"), 0.9, 2), UndecidedPair(("b", "c"), 0.8, 3)
UNKNOWN = UndecidedPair(("c", "d"), 0.5, None)


@pytest.mark.parametrize(
    ("seconds", "settled"), [(3.0, []), (4.0, [NEAR]), (7.0, [NEAR]), (8.0, [NEAR, FAR]), (1e9, [NEAR, FAR])]
)
def test_the_cheapest_pairs_fit_into_the_time_first_and_share_the_launches_of_a_trial(seconds, settled):
    assert settled_within([UNKNOWN, FAR, NEAR], seconds, lambda _: 1.0) == settled


def test_a_pair_of_quick_trials_goes_before_one_that_needs_fewer_launches_of_slow_ones():
    assert settled_within([NEAR, FAR], 17.0, {"a": 20.0, "b": 1.0, "c": 1.0}.__getitem__) == [FAR]


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


def drawn(rng, apart, drift=0.0, sites=1):
    """Return a study of 24 trials that spread by unequal amounts, with unequal numbers of launches."""
    of_blocks = drift * rng.standard_normal(6)
    study = {}
    for number in range(24):
        mean, spread = apart * rng.standard_normal(), 0.01 * np.exp(rng.standard_normal())
        blocks = sorted(rng.choice(6, size=rng.integers(1, 7), replace=False))
        logs = [mean + of_blocks[block] + spread * rng.standard_normal() for block in blocks]
        study[f"t{number}"] = [
            LaunchTimes(int(block), np.exp([log]), 0, log, 0.0, site=(f"s{block % sites}",))
            for block, log in zip(blocks, logs, strict=True)
        ]
    return study


@pytest.mark.parametrize("apart", [0.002, 0.05, 0.5])
@pytest.mark.parametrize(("drift", "sites"), [(0.0, 1), (0.2, 1), (0.2, 2)], ids=["steady", "drifting", "two sites"])
def test_the_pairs_are_those_that_a_comparison_of_all_with_all_leaves_undecided(apart, drift, sites):
    rng = np.random.default_rng(7)
    for _ in range(3):
        study = drawn(rng, apart, drift, sites)
        placed, names = in_turns(study), list(study)
        spreads = pool_spread(placed)

        def undecided(pair, placed=placed, spreads=spreads, names=names):
            known = tuple(spreads[name] for name in pair) if set(pair) <= spreads.keys() else None
            return compare(*(placed[name] for name in pair), spreads=known, family=len(names)).undecided

        every = {pair for pair in combinations(names, 2) if undecided(pair)}
        assert {pair.trials for pair in undecided_pairs(study, [names])} == every
        assert undecided_trials(study, [names]) == {name for pair in every for name in pair}


@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_comparisons_grow_with_trials_and_not_with_their_pairs(apart, monkeypatch):
    rng = np.random.default_rng(3)
    means = apart * rng.standard_normal(300)
    study = {str(number): launches(*(mean + 0.01 * rng.standard_normal(4))) for number, mean in enumerate(means)}
    counted = []

    def counting(*given, **options):
        counted.append(1)
        return compare(*given, **options)

    monkeypatch.setattr("steptime.statistics.undecided_pairs.compare", counting)
    undecided_trials(study, [list(study)])
    assert len(counted) <= 3 * len(study)
    counted.clear()
    undecided_pairs(study, [list(study)])
    assert len(counted) <= 5000  # of 44,850 pairs
