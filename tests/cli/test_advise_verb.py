"""Advice is verified for real: the trial and its change are run in the same blocks, and both gains are told."""

import json
from dataclasses import replace

import pytest
from launch_phases import STAGES, launch_of
from simulated import a_launch
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.diagnosis.tried_advice import read_verified
from steptime.results.store import Store
from steptime.runner.plan import plan_study

STUDY = """\
name: small
workloads: {name: lenet5}
frameworks: reference
strategies: single
workers: 1
batch_per_worker: 2
seconds_per_launch: 0.2
steps: {warmup: 2, min: 5, max: 20}
equivalence: {enabled: false}
"""


def advised(*arguments):
    result = CliRunner().invoke(app, ["advise", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder whose step is made up so that most of it would not grow with the batch."""
    folder = tmp_path_factory.mktemp("advice")
    study = folder / "study.yaml"
    study.write_text(STUDY)
    plan = plan_study(str(study), [], folder / "results", None)
    (trial,) = plan.expansion.trials
    store = Store.create(plan.folder, study_text=STUDY, study_json=plan.study.model_dump(mode="json"))
    store.add_trial(trial)
    for number in range(3):
        store.append(a_launch(trial, number, [sum(STAGES.values())] * 10))
        store.append(replace(launch_of(number, 1), trial=trial.id))
    return plan.folder


@pytest.fixture(scope="module")
def verified(results):
    return json.loads(advised(results, "--verify", "--most", "1", "--launches", "3", "--json"))


def test_advice_is_ranked_with_the_change_to_paste_and_its_predicted_gain(results):
    shown = advised(results)

    assert "[batch_per_worker=8]" in shown
    assert "predicted gain" in shown


@pytest.mark.costly
def test_a_verification_measures_what_was_predicted(verified):
    (found,) = verified["verified"]

    assert found["reason"] is None
    assert found["row"]["launches"] == 3
    assert found["row"]["predicted_low"] <= found["row"]["predicted"] <= found["row"]["predicted_high"]
    assert found["row"]["measured_low"] <= found["row"]["measured"] <= found["row"]["measured_high"]


@pytest.mark.costly
def test_both_sides_ran_in_the_same_blocks(results, verified):
    store = Store.open(results / "advice")
    blocks = [[each.block for each in store.launches(trial.id)] for trial in store.trials()]

    assert sorted(blocks[0]) == sorted(blocks[1])


@pytest.mark.costly
def test_what_was_verified_is_kept_as_a_table(results, verified):
    (row,) = read_verified(results / "advice" / "verified.csv")

    assert (row.rule, row.overrides) == ("small_batch", "batch_per_worker=8")


@pytest.mark.costly
def test_a_verification_that_is_done_is_not_repeated(results, verified):
    again = json.loads(advised(results, "--verify", "--most", "1", "--launches", "3", "--json"))

    assert again["verified"] == verified["verified"]


def test_nothing_to_verify_is_a_mistake_with_a_reason(tmp_path):
    store = Store.create(tmp_path / "empty", study_text=STUDY, study_json={"name": "small", "question": ""})
    result = CliRunner().invoke(app, ["advise", str(store.path), "--verify"])

    assert "no finding has a change" in str(result.exception)
