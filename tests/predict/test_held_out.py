from dataclasses import replace

import pytest
from world import KEY, World, a_profile, observed

from steptime.fitting.profile import PredictedSeconds
from steptime.predict.held_out import anomaly_of, errors_of, with_holdout


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
