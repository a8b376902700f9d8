"""A study of both tiers expands into documented and tuned trials, and into one where the tier changes nothing."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.catalog.manifest import Manifest
from steptime.expansion.expansion import Expansion, expand
from steptime.study.study import Study

OPTIONS = {
    "compile": {"help": "", "type": "bool", "default": False},
    "bucket_mb": {"help": "", "type": "float", "default": 25.0, "strategies": ["allreduce"]},
    "layout": {"help": "", "type": "str", "default": "nchw"},
}


CUDA_BUILD = {
    "requirements": "requirements-cuda.txt",
    "toolkit": "12.8",
    "driver": "525.60.13",
    "oldest": "7.0",
    "newest": "9.0",
    "why_not_newer": "it has machine code alone",
}


def devices(count: int) -> Accelerators:
    return Accelerators((Accelerator("H100", "GPU-1", (9, 0), 8e10),) * count, "580.65.06")


def manifest_of(tuned: dict[str, Any]) -> Manifest:
    fields = {"title": "T", "distribution": "t", "python": ["3.11"], "name": "ring", "folder": Path(), "package": "t"}
    strategies = {"single": {}, "allreduce": {"min_workers": 2}}
    more = {"strategies": strategies, "devices": ["cpu", "cuda"], "cuda": [CUDA_BUILD], "options": OPTIONS}
    return Manifest.model_validate({**fields, **more, "tuned": tuned})


def expanded(tuned: dict[str, Any], cuda_devices: int = 0, **axes: Any) -> Expansion:
    study = {"name": "test", "workloads": "lenet5", "frameworks": "ring", "tuning": ["documented", "tuned"], **axes}
    return expand(Study.model_validate(study), {"ring": manifest_of(tuned)}, {}, devices(cuda_devices))


def test_a_study_that_names_no_tier_has_the_trials_that_it_had_before_there_were_tiers():
    (trial,) = expanded({"compile": True}, tuning="documented").trials
    assert trial.options == {"compile": False, "layout": "nchw"}
    assert trial.id == "ring-single-lenet5-w1-b32-33df73c9"


def test_where_the_tier_changes_an_option_there_is_one_trial_of_each_tier():
    documented, tuned = expanded({"compile": True}).trials
    assert (documented.tuning, documented.options["compile"]) == ("documented", False)
    assert (tuned.tuning, tuned.options["compile"]) == ("tuned", True)
    assert documented.id != tuned.id


def test_a_tuned_trial_knows_the_documented_values_of_what_was_changed():
    _, tuned = expanded({"compile": True, "layout": "nhwc"}).trials
    assert tuned.documented_options == {"compile": False, "layout": "nchw"}


def test_where_the_tier_changes_nothing_there_is_one_documented_trial_in_both_tiers():
    found = expanded({"bucket_mb": 100.0})
    (trial,) = found.trials
    assert trial.tuning == "documented"
    assert found.tiers == {trial.id: ("documented", "tuned")}


def test_where_only_the_tuned_tier_is_asked_for_and_changes_nothing_the_trial_is_the_documented_one():
    found = expanded({}, tuning="tuned")
    (trial,) = found.trials
    assert trial.id == expanded({}, tuning="documented").trials[0].id
    assert found.tiers == {trial.id: ("tuned",)}


def test_an_option_that_the_study_names_wins_over_the_tier():
    found = expanded({"compile": True, "layout": "nhwc"}, options={"ring": {"layout": ["nchw", "blocked"]}})
    assert [(each.tuning, each.options["compile"], each.options["layout"]) for each in found.trials] == [
        ("documented", False, "nchw"),
        ("tuned", True, "nchw"),
        ("documented", False, "blocked"),
        ("tuned", True, "blocked"),
    ]


def test_where_the_study_names_all_that_the_tier_changes_nothing_runs_twice():
    found = expanded({"compile": True}, options={"ring": {"compile": [False, True]}})
    assert [(each.tuning, each.options["compile"]) for each in found.trials] == [
        ("documented", False),
        ("documented", True),
    ]
    assert set(found.tiers.values()) == {("documented", "tuned")}


def test_the_tuned_values_of_an_included_item_are_the_tuned_trial():
    found = expanded({"compile": True}, include=[{"options": {"ring": {"compile": True}}, "tuning": "documented"}])
    assert [each.tuning for each in found.trials] == ["documented", "tuned"]
    assert found.tiers[found.trials[1].id] == ("tuned", "documented")


def test_a_tier_of_one_framework_can_be_excluded():
    found = expanded({"compile": True}, exclude={"frameworks": "ring", "tuning": "tuned"})
    assert [each.tuning for each in found.trials] == ["documented"]


def test_a_combination_without_its_excluded_tier_stands_in_the_other_alone():
    found = expanded({}, exclude={"tuning": "tuned"})
    assert list(found.tiers.values()) == [("documented",)]


def test_the_tuned_value_follows_the_device():
    tuned = expanded({"devices": {"cuda": {"layout": "nhwc"}}}, cuda_devices=1, device=["cpu", "cuda"]).trials
    assert [(each.device, each.tuning) for each in tuned] == [
        ("cpu", "documented"),
        ("cuda", "documented"),
        ("cuda", "tuned"),
    ]


def test_an_impossible_combination_is_listed_once_where_the_tier_changes_nothing():
    assert len(expanded({}, strategies="single", workers=2).skipped) == 1


def test_documented_and_tuned_are_compared_with_each_other():
    documented, tuned = expanded({"compile": True}).trials
    assert documented.group == tuned.group


VALUES = {"compile": [True], "bucket_mb": [1.0, 100.0], "layout": ["nhwc", "blocked"]}
TUNED = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})
CHOSEN = st.fixed_dictionaries(
    {},
    optional={
        "compile": st.lists(st.booleans(), min_size=1, unique=True),
        "bucket_mb": st.lists(st.sampled_from([1.0, 25.0, 100.0]), min_size=1, unique=True),
        "layout": st.lists(st.sampled_from(["nchw", "nhwc"]), min_size=1, unique=True),
    },
)


@given(TUNED, CHOSEN, st.lists(st.sampled_from(["documented", "tuned"]), min_size=1, unique=True))
def test_no_configuration_is_run_twice_and_each_tier_that_is_asked_for_has_all_of_its_own(tuned, chosen, tuning):
    manifest = manifest_of(tuned)
    found = expanded(tuned, options={"ring": chosen}, workers=[1, 2], tuning=tuning)
    ran = [(each.strategy, each.workers, tuple(sorted(each.options.items()))) for each in found.trials]
    assert len(set(ran)) == len(ran)
    for tier in tuning:
        standing = [each for each in found.trials if tier in found.tiers[each.id]]
        alone = expanded(tuned, options={"ring": chosen}, workers=[1, 2], tuning=tier).trials
        assert [each.options for each in standing] == [each.options for each in alone]
    for each in found.trials:
        values = manifest.tier_options(each.tuning, each.strategy, "cpu")
        free = [name for name in each.options if name not in chosen]
        assert {name: each.options[name] for name in free} == {name: values[name] for name in free}


@pytest.mark.parametrize("tuning", ["documented", "tuned"])
def test_the_id_covers_the_tier_and_not_the_values_that_it_replaced(tuning):
    trial = expanded({"compile": True}, tuning=tuning).trials[0]
    other = trial.model_copy(update={"documented_options": {"layout": "blocked"}})
    assert other.id == trial.id
