"""What ``import steptime`` gives: the same figures as the verbs."""

import importlib
import json
import subprocess
import sys

import polars as pl
import pytest
from program import steptime as program

import steptime
from steptime.errors import StoreError, UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small study of the reference with a breakdown."""
    root = tmp_path_factory.mktemp("api")
    study = root / "small.yaml"
    study.write_text(
        "version: 1\nquestion: How fast?\nworkloads: [{name: lenet5, batch_per_worker: 8}]\nframeworks: reference\n"
        "strategies: allreduce\nworkers: [1, 2]\nloaders: synthetic\nlaunches: {min: 3, max: 3}\n"
        "seconds_per_launch: 0.05\nsteps: {warmup: 1, min: 3, max: 5}\nequivalence: {enabled: false}\n"
        "breakdown: {launches: 1, seconds: 0.2}\n"
    )
    program("run", str(study), "-o", "results", cwd=root)
    return root / "results"


def printed(*arguments, cwd):
    return json.loads(program(*arguments, cwd=cwd).stdout)


def test_public_names_are_those_of_all():
    assert set(steptime.__all__) <= {name for name in steptime.__all__ if getattr(steptime, name) is not None}


@pytest.mark.parametrize("module", ["predict.query", "attached.form"])
def test_a_function_is_one_also_after_the_package_of_its_name_was_imported(module):
    name = module.partition(".")[0]
    lines = f"import steptime.{module}, steptime; print(callable(steptime.{name}))"
    said = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout
    assert said == "True\n"


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'read_result'"):
        _ = steptime.read_result


@pytest.mark.parametrize("use", ["steptime", "steptime.attached"])
def test_importing_steptime_or_using_a_block_imports_no_numpy(use):
    code = f"import sys, steptime; {use}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_trials_have_the_figures_of_the_report(folder):
    report = printed("report", str(folder), "--json", cwd=folder.parent)
    rates = dict(steptime.read_results(folder).trials.select("id", "throughput_samples_per_s_value").iter_rows())
    assert rates == {each["id"]: each["throughput_samples_per_s"]["value"] for each in report["trials"]}


def test_every_launch_and_every_timed_step_has_a_row(folder):
    results = steptime.read_results(folder)
    assert len(results.launches) == 6
    assert results.launches["status"].unique().to_list() == ["ok"]
    assert set(results.steps["trial"].cast(str)) == set(results.trials["id"])


def test_the_phases_of_a_trial_sum_to_its_step(folder):
    results = steptime.read_results(folder)
    report = printed("report", str(folder), "--json", cwd=folder.parent)
    parts = results.phases.filter(pl.col("phase") != "comm_hidden").group_by("trial").agg(pl.col("value_s").sum())
    steps = {each["id"]: each["breakdown"]["step_s"]["value_s"] for each in report["trials"]}
    assert dict(parts.iter_rows()) == pytest.approx(steps)


def test_predictions_are_those_of_the_program(folder):
    profile = steptime.fit(folder)
    found = steptime.predict(profile, [2, 4])
    path = folder.parent / "own.profile.json"
    steptime.write_profile(profile, path)
    told = printed("predict", str(path), "--workers", "2,4", "--json", cwd=folder.parent)["predictions"]
    assert found["step_time_s"].to_list() == pytest.approx([each["step_time_s"]["value"] for each in told])
    assert steptime.predict(steptime.read_profile(path), [2, 4]).equals(found)


def test_an_unknown_change_is_named_with_the_choices(folder):
    with pytest.raises(UsageError, match="bandwith"):
        steptime.predict(steptime.fit(folder), [2], ["interconnect.bandwith=1Gbit/s"])


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(StoreError, match="not a results folder"):
        steptime.read_results(tmp_path)


def test_the_interface_documents_what_it_raises():
    module = importlib.import_module("steptime.api")
    assert all("Raises" in getattr(module, name).__doc__ for name in ("read_results", "fit", "predict"))
