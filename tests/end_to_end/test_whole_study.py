"""A whole study on the reference framework: real processes, real sockets, real files."""

import json
import math
import re
import shutil
import subprocess
import sys

import polars as pl
import pytest
from program import STUDY, launches, report, steptime, write_study

TRIAL_KEYS = {
    "id",
    "framework",
    "framework_version",
    "strategy",
    "workload",
    "loader",
    "device",
    "precision",
    "workers",
    "hosts",
    "batch_per_worker",
    "launches",
    "steps",
    "step_time_s",
    "throughput_samples_per_s",
    "efficiency",
    "status",
    "reason",
    "flags",
}


def test_every_trial_of_the_study_is_in_the_report_and_ok(measured):
    trials = report(measured, "results")["trials"]
    assert {(each["strategy"], each["workers"], each["status"]) for each in trials} == {
        ("single", 1, "ok"),
        ("allreduce", 2, "ok"),
    }


def test_the_report_has_every_key_of_the_contract(measured):
    data = report(measured, "results")
    assert data["schema"] == 2
    assert data["study"] == "small"
    for trial in data["trials"]:
        assert set(trial) >= TRIAL_KEYS
        assert set(trial["step_time_s"]) >= {"mean", "median", "low", "high", "level"}
        assert set(trial["throughput_samples_per_s"]) >= {"value", "low", "high"}
        assert set(trial["efficiency"]) >= {"value", "baseline_workers"}
    for place in data["ranking"]:
        assert set(place) >= {"group", "rank", "trial", "ratio_to_best", "tied_with_best"}
        assert set(place["ratio_to_best"]) >= {"value", "low", "high"}
    for check in data["equivalence"]:
        assert set(check) >= {
            "framework",
            "workload",
            "parameters",
            "parameters_expected",
            "first_loss_error",
            "passed",
        }


def test_no_number_comes_without_an_interval_that_holds_it(measured):
    for trial in report(measured, "results")["trials"]:
        times, rates = trial["step_time_s"], trial["throughput_samples_per_s"]
        assert 0 < times["low"] <= times["mean"] <= times["high"]
        assert 0 < rates["low"] <= rates["value"] <= rates["high"]


def test_throughput_is_the_global_batch_over_the_step_time(measured):
    for trial in report(measured, "results")["trials"]:
        expected = trial["workers"] * trial["batch_per_worker"] / trial["step_time_s"]["mean"]
        assert math.isclose(trial["throughput_samples_per_s"]["value"], expected, rel_tol=1e-9)


def test_efficiency_names_its_baseline(measured):
    trials = {each["workers"]: each for each in report(measured, "results")["trials"]}
    rate = {workers: each["throughput_samples_per_s"]["value"] for workers, each in trials.items()}
    assert trials[2]["efficiency"]["baseline_workers"] == 1
    assert trials[2]["efficiency"]["value"] == pytest.approx(rate[2] / 2 / rate[1])
    assert trials[1]["efficiency"]["value"] == 1


def test_the_gate_found_the_published_parameters(measured):
    equivalence = report(measured, "results")["equivalence"]
    assert {(each["parameters"], each["parameters_expected"], each["passed"]) for each in equivalence} == {
        (61_706, 61_706, True)
    }


def test_every_launch_keeps_its_exact_command_and_its_noise(measured):
    for launch in launches(measured / "results"):
        assert all(command[1:] == ["start.py", "job.json"] for command in launch["commands"])
        assert launch["noise"]
        assert launch["environment"]["packages"]["numpy"]


def test_the_trials_of_a_block_ran_one_after_the_other_and_in_every_block(measured):
    blocks = [launch["block"] for launch in sorted(launches(measured / "results"), key=lambda each: each["started_at"])]
    assert blocks == [0, 0, 1, 1, 2, 2]


def test_a_run_folder_can_be_moved_and_started_by_hand(measured, tmp_path):
    (trial,) = (measured / "results" / "trials").glob("reference-single-*")
    moved = tmp_path / "elsewhere"
    shutil.copytree(trial / "launch-0", moved)
    for old in moved.glob("worker-0.*"):
        old.unlink()
    subprocess.run([sys.executable, "start.py", "job.json"], cwd=moved, check=True, env={"PATH": "/usr/bin:/bin"})
    kinds = [json.loads(line)["kind"] for line in (moved / "worker-0.jsonl").read_text().splitlines()]
    assert kinds == ["process", "session", "warmup", "steps", "threads", "done"]


def test_running_again_repeats_nothing(measured):
    before = launches(measured / "results")
    steptime("run", "small.yaml", "-o", "results", cwd=measured)
    assert launches(measured / "results") == before


def test_the_page_is_one_offline_file_under_two_megabytes(measured):
    page = (measured / "results" / "report.html").read_text()
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?:https?:)?//""", page)


def test_status_counts_launches(measured):
    rows = json.loads(steptime("status", "results", "--json", cwd=measured).stdout)
    assert sorted((row["ok"], row["failed"]) for row in rows) == [(3, 0), (3, 0)]


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_export_has_a_row_for_every_timed_step(measured, tmp_path, form):
    written = steptime("export", "results", "--to", form, "-o", str(tmp_path), cwd=measured).stdout.split()
    tables = {path.rsplit("/", 1)[1].split(".")[0]: path for path in written}
    read = pl.read_parquet if form == "parquet" else pl.read_csv
    timed = sum(len(worker["ends_s"]) for launch in launches(measured / "results") for worker in launch["workers"])
    assert len(read(tables["worker_steps"])) == timed
    assert len(read(tables["trials"])) == 2


def test_a_dry_run_prints_commands_and_starts_nothing(tmp_path):
    plan = json.loads(
        steptime("run", write_study(tmp_path), "-o", "results", "--dry-run", "--json", cwd=tmp_path).stdout
    )
    assert [len(trial["commands"]) for trial in plan["trials"]] == [1, 2]
    assert plan["estimated_s"] > 0
    assert not (tmp_path / "results").exists()


def test_overrides_change_the_study(tmp_path):
    text = steptime("run", write_study(tmp_path), "workers=[1]", "--dry-run", "--json", cwd=tmp_path).stdout
    assert [trial["workers"] for trial in json.loads(text)["trials"]] == [1]


@pytest.mark.costly
def test_a_budget_ends_the_study_in_time_and_keeps_what_was_measured(tmp_path):
    study = write_study(tmp_path, STUDY.replace("max: 3}", "max: 1000}").replace("min: 3,", "min: 900,"))
    budget = ["--budget", "", "equivalence.enabled=false"]
    for seconds in (6, 12, 24, 48):  # which a busy machine needs for a launch of each trial
        budget[1] = f"{seconds}s"
        code = steptime("run", study, "-o", "results", *budget, cwd=tmp_path, check=None).returncode
        if code != 4:
            break
    assert code == 0
    done = launches(tmp_path / "results")
    assert 2 <= len(done) < 2 * 900
    assert {each["status"] for each in report(tmp_path, "results")["trials"]} == {"ok"}
