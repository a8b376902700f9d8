from dataclasses import replace

import numpy as np
import pytest
from world import KEY, World, a_profile, asked, observed

from steptime.fitting.profile import HeldOut, PredictedSeconds
from steptime.predict.held_out import anomaly_of, errors_of, with_holdout
from steptime.predict.held_out_test import HeldOutTest


@pytest.fixture(scope="module")
def held():
    observations = observed(World(noise=0.02), 1)
    profile = with_holdout(a_profile(observations), observations)
    return next(group.held_out for group in profile.groups if group.key == KEY)


def test_each_configuration_of_the_strategy_is_left_out_once(held):
    assert sorted((each.workers, each.batch) for each in held) == [(2, 16), (2, 32), (3, 64)]


def test_the_model_beats_every_null_where_it_is_true(held):
    own = errors_of(held).median
    assert all(own < errors_of(held, null).median for null in ("linear", "last", "log2"))


def test_held_out_points_did_not_take_part(held):
    """A step that is measured wrong stands out, because its own prediction does not follow it."""
    observations = observed(World(noise=0.02), 1)
    index = next(place for place, each in enumerate(observations) if each.deployment.workers == 3)
    slow = observations[index]
    observations[index] = replace(slow, steps_s=tuple(5 * step for step in slow.steps_s))
    profile = with_holdout(a_profile(observations), observations)
    odd = next(each for group in profile.groups for each in group.held_out if each.workers == 3)
    usual = next(each for each in held if each.workers == 3)
    assert odd.predicted == usual.predicted
    assert odd.verdict == "broken"


def test_most_points_are_normal_where_the_model_is_true():
    verdicts = []
    for seed in range(8):
        observations = observed(World(), seed)
        profile = with_holdout(a_profile(observations), observations)
        verdicts += [each.verdict for group in profile.groups for each in group.held_out]
    assert verdicts.count("normal") >= 0.8 * len(verdicts)


def point(measured_s, workers=2, low_s=0.09, high_s=0.11):
    step = PredictedSeconds(value_s=0.1, low_s=low_s, high_s=high_s)
    kept = {"trial": "t", "batch": 16, "phases": {}, "anomalous_phase": None, "nulls": {}}
    return HeldOut(workers=workers, measured_s=measured_s, predicted=step, verdict="normal", **kept)


@pytest.fixture(scope="module")
def world_profile():
    return a_profile(observed(World(noise=0.02), 1))


def with_points(profile, *points):
    """Return the profile with other results of what was left out of the model of several workers."""
    groups = [
        each.model_copy(update={"held_out": list(points)}) if each.key == KEY else each for each in profile.groups
    ]
    return profile.model_copy(update={"groups": groups})


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ([], "The model was not tested on held-out points."),
        ([0.1, 0.109], "All 2 held-out measurements lay inside this model's interval."),
        ([0.154], "The one held-out measurement lay outside this model's interval (by 1.4 times)."),
        ([0.1, 0.06, 0.154], "2 of 3 held-out measurements lay outside this model's interval (by up to 1.5 times)."),
    ],
    ids=["none", "no-miss", "all-miss", "some-miss"],
)
def test_a_prediction_has_how_its_model_did_on_what_was_left_out_of_its_fit(world_profile, measured, words):
    assert asked(with_points(world_profile, *map(point, measured)), 3).held_out.in_words() == words


def test_what_was_left_out_of_one_worker_says_nothing_of_several(world_profile):
    profile = with_points(world_profile, point(0.3, workers=1), point(0.1))
    assert [asked(profile, workers).held_out.outside for workers in (3, 1)] == [0, 1]


@pytest.mark.parametrize(("workers", "left_out"), [(3, 1), (1, 2)])
def test_a_model_that_was_tested_elsewhere_names_how_it_did_there(world_profile, workers, left_out):
    profile = with_points(world_profile, point(0.3, workers=left_out))
    assert asked(profile, workers).held_out.in_words() == (
        "The model was tested on other numbers of workers: 1 of 1 lay outside."
    )


@pytest.mark.parametrize("seen_s", [0.05, 0.154, 0.3])
def test_an_interval_is_as_wide_as_it_takes_to_hold_what_was_left_out(world_profile, seen_s):
    """The measurement is as far from the middle as an end of the wider interval, on the scale of logarithms."""
    sharp = asked(with_points(world_profile, point(0.1)), 3).step_s
    wide = asked(with_points(world_profile, point(seen_s, low_s=0.0999, high_s=0.1001)), 3).step_s

    off, half = abs(np.log(seen_s / 0.1)), np.log(wide.high / wide.low) / 2
    assert half == pytest.approx(np.hypot(off, np.log(sharp.high / sharp.low) / 2), rel=0.15)
    assert wide.value == sharp.value


def test_of_ten_measurements_one_may_lie_outside_an_interval_of_90_percent(world_profile):
    most = [point(0.1)] * 9
    sharp, one, two = (
        asked(with_points(world_profile, *points), 3).step_s
        for points in ([*most, point(0.1)], [*most, point(0.3)], [*most[1:], point(0.3), point(0.3)])
    )
    assert one == sharp
    assert two.high > 1.5 * sharp.high


def test_a_model_that_errs_on_what_was_left_out_asks_for_what_shows_where(world_profile):
    assert (
        "another number of workers to fit, at best from " in asked(with_points(world_profile, point(0.4)), 3).narrowing
    )


STEP = PredictedSeconds(value_s=0.1, low_s=0.09, high_s=0.11)
PHASES = {
    "backward": PredictedSeconds(value_s=0.05, low_s=0.045, high_s=0.055),
    "comm_exposed": PredictedSeconds(value_s=0.02, low_s=0.01, high_s=0.03),
    "update": None,
}


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (0.1, "normal"),
        (0.11, "normal"),
        (0.112, "suspicious"),
        (0.088, "suspicious"),
        (0.2, "broken"),
        (0.05, "broken"),
    ],
)
def test_a_step_is_normal_suspicious_or_broken(seconds, verdict):
    assert anomaly_of(seconds, STEP, {}, PHASES).verdict == verdict


def test_the_phase_that_is_off_is_named():
    found = anomaly_of(0.15, STEP, {"backward": 0.05, "comm_exposed": 0.07, "update": 1.0}, PHASES)
    assert found.phase == "comm_exposed"


def test_a_phase_that_is_too_quick_is_named_where_the_step_is():
    assert anomaly_of(0.05, STEP, {"backward": 0.01, "comm_exposed": 0.05}, PHASES).phase == "backward"


def test_no_phase_is_named_where_none_was_measured_or_the_step_is_normal():
    assert anomaly_of(0.15, STEP, {"backward": None}, PHASES).phase is None
    assert anomaly_of(0.1, STEP, {"comm_exposed": 0.09}, PHASES).phase is None


def test_a_band_says_by_how_much():
    form = anomaly_of(0.15, STEP, {}, PHASES).to_json()
    assert form["ratio"] == pytest.approx(1.5)
    assert form["predicted_s"] == {"value": 0.1, "low": 0.09, "high": 0.11}


@pytest.mark.parametrize(("farthest", "words"), [(1.004, "0.4 %"), (1.1, "1.1 times"), (12.0, "12 times")])
def test_a_measurement_just_outside_is_not_one_time_outside(farthest, words):
    assert HeldOutTest(1, 1, farthest, 0.0).in_words().endswith(f"outside this model's interval (by {words}).")
