from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from world import KEY, MACHINE, SIZES, TRUTH, World, a_deployment, a_profile, asked, observed

from steptime.fitting.fit import fit_group
from steptime.fitting.profile import Profile
from steptime.predict.predict import Prediction, predict
from steptime.predict.query import read_queries

SEEDS = 120


@pytest.fixture(scope="module")
def hits():
    """For each parameter, in how many of the made-up groups its interval holds the truth."""
    found = dict.fromkeys(TRUTH, 0)
    for seed in range(SEEDS):
        truth = world_of(seed).truth
        group = fit_group(KEY, observed(world_of(seed), seed), MACHINE, [])
        for name, parameter in group.parameters.items():
            found[name] += parameter.low <= truth[name] <= parameter.high
    return found


def world_of(seed: int) -> World:
    """What of the link cannot be seen varies from world to world, as it is believed to."""
    rng = np.random.default_rng(1000 + seed)
    start, rate, hidden = rng.standard_normal(3)
    varying = {
        "latency_factor": float(np.exp(0.7 * start)),
        "bandwidth_factor": float(np.exp(0.1 * rate)),
        "overlap_efficiency": float(1 / (1 + np.exp(-3.0 - hidden))),
    }
    return World(truth={**TRUTH, **varying})


@cache
def profile_of_world(seed: int) -> Profile:
    """The profile of a world, fitted once for all tests of a process."""
    return a_profile(observed(world_of(seed), seed))


@cache
def predictions_of_world(seed: int) -> list[Prediction]:
    """What the profile of a world predicts of 2 and of 4 workers, once for all tests of a process."""
    profile = profile_of_world(seed)
    return predict(profile, [2, 4], read_queries(["batch_per_worker=32"], profile))


def test_intervals_of_90_percent_hold_the_truth_85_to_95_percent_of_the_time(hits):
    assert 0.85 <= sum(hits.values()) / (SEEDS * len(hits)) <= 0.95


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_no_parameter_is_wrong_much_more_often_than_it_says(hits, name):
    # Four standard errors of a share of 120 below 90 %.
    assert hits[name] / SEEDS > 0.9 - 4 * np.sqrt(0.9 * 0.1 / SEEDS)


def test_a_step_between_the_measured_sizes_is_predicted_within_its_interval_most_of_the_time():
    inside = 0
    for seed in range(40):
        world = world_of(seed)
        found = asked(profile_of_world(seed), 2, "batch_per_worker=24")
        true, _ = world.step(KEY, a_deployment(2, 24))
        inside += found.step_s.low <= true <= found.step_s.high
    assert inside >= 34


def test_a_step_of_more_workers_than_measured_is_predicted_within_its_interval_most_of_the_time():
    inside = 0
    for seed in range(40):
        world = world_of(seed)
        (found,) = (each for each in predictions_of_world(seed) if each.deployment.workers == 4)
        true, _ = world.step(KEY, a_deployment(4, 32))
        inside += found.step_s.low <= true <= found.step_s.high
    assert inside >= 34


def test_a_step_behind_one_slow_link_is_predicted_within_its_interval_most_of_the_time():
    inside = 0
    for seed in range(40):
        world = replace(world_of(seed), slowest_link=0.7)
        found = asked(a_profile(observed(world, seed)), 2, "batch_per_worker=24")
        true, _ = world.step(KEY, a_deployment(2, 24))
        inside += found.step_s.low <= true <= found.step_s.high
    assert inside >= 34


def test_more_launches_narrow_every_interval_of_computing():
    few, many = (fit_group(KEY, observed(World(launches=launches), 1), MACHINE, []).parameters for launches in (2, 32))
    for name in ("forward_per_sample_s", "backward_per_sample_s", "update_s", "contention_factor"):
        assert many[name].high - many[name].low < few[name].high - few[name].low


def test_without_breakdown_the_interval_is_wider_and_the_profile_says_so():
    whole, totals = (a_profile(observed(World(breakdown=breakdown), 3)) for breakdown in (True, False))
    widths = [
        np.log(one.step_s.high / one.step_s.low)
        for one in (asked(p, 3, "batch_per_worker=64") for p in (whole, totals))
    ]
    assert widths[1] > widths[0]
    group = next(group for group in totals.groups if group.key == KEY)
    assert any("breakdown" in note for note in group.notes)
    assert group.parameters["backward_per_sample_s"].how == "apportioned"


def test_the_same_observations_give_the_same_profile():
    one, other = (a_profile(observed(World(), 5, SIZES)) for _ in range(2))
    assert one == other
