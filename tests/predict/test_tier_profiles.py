"""Models of the tiers documented and tuned are never pooled: each is fitted to its own records and named apart."""

import re
from dataclasses import replace

import pytest
from world import KEY, World, a_profile, observed

from steptime.errors import UsageError
from steptime.fitting.observation import USUAL_SETTINGS, key_of
from steptime.predict.predict import predict
from steptime.predict.query import read_queries
from steptime.study.trial import Trial

SLOWER = 3.0


@pytest.fixture(scope="module")
def profile():
    """Documented records, and tuned ones in a third of the time that differ in no option that a group's key has."""
    documented = observed(World(), 1)
    tuned = [
        replace(
            each,
            trial=f"{each.trial}-tuned",
            key=replace(each.key, tuning="tuned"),
            steps_s=tuple(step / SLOWER for step in each.steps_s),
            launch_phases=(),
        )
        for each in documented
        if each.key.strategy == KEY.strategy
    ]
    return a_profile([*documented, *tuned])


def trial(**changes):
    fields = {"framework": "ring", "strategy": "allreduce", "workload": "mlp", "input_shape": (784,), "classes": 10}
    more = {"dataset": None, "loader": "synthetic", "device": "cpu", "precision": "fp32", "workers": 2}
    return Trial(**{**fields, **more, "batch_per_worker": 8, **changes})


def test_two_trials_that_differ_in_their_tier_alone_are_two_groups():
    bucket = {"options": {"bucket_mb": 100.0}, "documented_options": {"bucket_mb": 25.0}, "tuning": "tuned"}
    assert key_of(trial(options={"bucket_mb": 25.0})) != key_of(trial(**bucket))


def test_a_profile_has_a_model_for_each_tier(profile):
    of_strategy = [group.key.tuning for group in profile.groups if group.key.strategy == KEY.strategy]
    assert sorted(of_strategy) == ["documented", "tuned"]


def test_the_measured_steps_of_a_model_are_of_its_own_tier(profile):
    for group in profile.groups:
        own = [each.trial for each in group.measured if each.strategy == group.key.strategy]
        assert own
        assert {each.endswith("-tuned") for each in own} == {group.key.tuning == "tuned"}


def test_without_a_tier_in_the_question_both_are_answered_apart(profile):
    (query,) = read_queries([], profile)
    assert sorted(each.key.name for each in predict(profile, [2], [query])) == [
        f"{KEY.framework} {KEY.strategy} tuned, {KEY.workload}",
        f"{KEY.framework} {KEY.strategy}, {KEY.workload}",
    ]


def test_a_question_about_a_tier_is_answered_by_its_models_alone(profile):
    (query,) = read_queries(["tuning=tuned"], profile)
    assert {each.key.tuning for each in predict(profile, [2], [query])} == {"tuned"}


def test_a_question_about_a_tier_that_the_profile_lacks_names_those_it_has():
    with pytest.raises(UsageError, match=r"unknown tuning 'tuned'.*documented.* in this profile"):
        read_queries(["tuning=tuned"], a_profile(observed(World(), 1)))


def test_another_workload_is_derived_from_the_same_tier(profile):
    (query,) = read_queries(["workload=alexnet"], profile)
    for each in predict(profile, [2], [query]):
        assert each.step_s is None or each.key.tuning in {"documented", "tuned"}
    assert len(predict(profile, [2], [query])) == 2


@pytest.fixture(scope="module")
def of_optimizers():
    """The same records twice, once as if another optimizer had made them."""
    usual = [each for each in observed(World(), 1) if each.key.strategy == KEY.strategy]
    adam = (("optimizer", "adam"),)
    others = [replace(each, trial=f"{each.trial}-adam", key=replace(each.key, settings=adam)) for each in usual]
    return a_profile([*usual, *others])


@pytest.mark.parametrize("value", ["adam", USUAL_SETTINGS["optimizer"]])
def test_a_question_about_a_setting_is_answered_by_its_models_alone(of_optimizers, value):
    (query,) = read_queries([f"optimizer={value}"], of_optimizers)
    assert {each.key.setting("optimizer") for each in predict(of_optimizers, [2], [query])} == {value}


@pytest.mark.parametrize("name", USUAL_SETTINGS)
def test_a_setting_that_no_model_has_is_answered_with_those_that_there_are(of_optimizers, name):
    usual = re.escape(USUAL_SETTINGS[name])
    with pytest.raises(UsageError, match=rf"unknown {name.replace('_', ' ')} 'lars'.*{usual}.* in this profile"):
        read_queries([f"{name}=lars"], of_optimizers)
