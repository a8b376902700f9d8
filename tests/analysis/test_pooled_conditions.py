"""A number over launches of different versions or schedules says so."""

from dataclasses import replace

import pytest
from launch_phases import launch_of
from simulated import a_launch, a_store, a_trial, a_worker

from steptime.analysis.pooled_conditions import pooled_versions
from steptime.analysis.summary import summarise

SCHEDULE = {"warmup_steps": 3, "seconds": 1.0, "min_steps": 10, "max_steps": 40}
FEW = "max_steps 40, min_steps 10, seconds 1, warmup_steps"
ENVIRONMENT = {"python": "3.11.2", "packages": {"torch": "2.1", "numpy": "1.26"}}


def flags_of(tmp_path, *launches, ablations=()):
    """Return the flags of a trial with ``launches``, each given by what differs from the first."""
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    usual = {"environment": ENVIRONMENT, "steptime": "0.1.0", "schedule": SCHEDULE}
    for number, changes in enumerate(launches):
        store.append(a_launch(a_trial(), number, [0.1] * 20, **{**usual, **changes}))
    for launch in ablations:
        store.append(replace(launch, trial=a_trial().id, **usual))
    (trial,) = summarise(store).trials
    return [flag for flag in trial.flags if flag.startswith("pooled")]


def test_launches_of_one_environment_have_no_flag(tmp_path):
    assert flags_of(tmp_path, {}, {}) == []


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        (
            {"environment": {**ENVIRONMENT, "python": "3.12.1"}},
            "versions of Python: 3.11.2 (2 launches); 3.12.1 (1 launch)",
        ),
        (
            {"environment": {**ENVIRONMENT, "packages": {"torch": "2.1", "numpy": "2.0"}}},
            "versions of numpy: 1.26 (2 launches); 2.0 (1 launch)",
        ),
        (
            {"environment": {**ENVIRONMENT, "packages": {"torch": "2.1"}}},
            "versions of numpy: 1.26 (2 launches); none (1 launch)",
        ),
        ({"steptime": "0.2.0"}, "versions of steptime: 0.1.0 (2 launches); 0.2.0 (1 launch)"),
        ({"steptime": None}, "versions of steptime: 0.1.0 (2 launches); not recorded (1 launch)"),
        (
            {"workers": [replace(a_worker([0.1] * 20), facts={"framework_version": "9"})]},
            "versions of the framework: 1.2 (2 launches); 9 (1 launch)",
        ),
        (
            {"schedule": {**SCHEDULE, "warmup_steps": 30}},
            f"schedules: {FEW} 3 (2 launches); {FEW} 30 (1 launch)",
        ),
        (
            {"isolation": "network namespace"},
            "isolation: network namespace (1 launch); none (2 launches)",
        ),
        (
            {"workers": [a_worker([0.1] * 20, host="elsewhere")]},
            "hosts: elsewhere (1 launch); here (2 launches)",
        ),
    ],
)
def test_a_launch_under_other_conditions_is_flagged_with_both(tmp_path, changes, flag):
    assert flags_of(tmp_path, {}, {}, changes) == [f"pooled over different {flag}"]


def test_launches_that_name_their_site_are_no_launches_of_an_unknown_host(tmp_path):
    elsewhere = {"workers": [a_worker([0.1] * 20, host="elsewhere")], "site": ["elsewhere"]}

    assert flags_of(tmp_path, {"site": ["here"]}, elsewhere) == []


def test_ablation_launches_of_another_version_are_flagged_with_the_timed_ones(tmp_path):
    launch = launch_of(0, workers=1)
    worker = replace(launch.workers[0], facts={"framework_version": "1.2"})
    found = flags_of(tmp_path, {"steptime": "0.0.9"}, ablations=[replace(launch, workers=[worker])])
    assert found == ["pooled over different versions of steptime: 0.0.9 (1 launch); 0.1.0 (1 launch)"]


def test_no_launches_have_no_flag():
    assert pooled_versions([]) == []
