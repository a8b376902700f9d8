"""What the command line says of launches that break steps down."""

import json
from pathlib import Path

import pytest
from program import steptime
from small_trial import TRIAL

from steptime.results.ablation_records import AblationLaunch, WorkerAblation
from steptime.results.store import Store


def plan(*overrides, as_json=True):
    words = ("run", "quickstart", "frameworks=reference", "include=[]", "exclude=[]", "workers=1")
    shown = steptime(*words, *overrides, "--dry-run", *(["--json"] if as_json else []), cwd=Path.cwd()).stdout
    return json.loads(shown) if as_json else " ".join(shown.split())


def launch(number, status="ok"):
    worker = WorkerAblation(
        rank=0,
        host="here",
        stages={"step": [[0.1]]},
        order=[["step"]],
        clocks=[{"at_s": 1.0, "offset_s": 0.0, "rtt_s": 0.0}],
        marks=[],
        marked=[],
        transfers=[],
        facts={},
    )
    return AblationLaunch(
        trial=TRIAL.id,
        launch=number,
        status=status,
        reason=None if status == "ok" else "worker-0: killed",
        started_at=f"2026-01-01T00:00:{number:02d}.000+00:00",
        wall_s=1.0,
        environment={},
        noise={},
        workers=[worker] if status == "ok" else [],
    )


@pytest.fixture
def folder(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={"name": "x", "breakdown": {"launches": 3}})
    store.add_trial(TRIAL)
    for number, status in enumerate(("ok", "ok", "failed")):
        store.append(launch(number, status))
    return store.path


def test_a_plan_counts_ablation_launches_and_their_time():
    with_them, without = plan("breakdown={launches: 2, seconds: 60s}", "budget=1h"), plan("budget=1h")
    trials = len(with_them["trials"])
    assert (with_them["ablation_launches"], without["ablation_launches"]) == (2 * trials, 0)
    assert with_them["ablation_estimated_s"] >= 2 * trials * 60.0
    added = with_them["estimated_s"] - without["estimated_s"]
    assert added == pytest.approx(with_them["ablation_estimated_s"])


def test_a_plan_says_them_in_words():
    assert "launches that break steps down, about" in plan("breakdown=true", as_json=False)
    assert "break steps down" not in plan(as_json=False)


def test_status_counts_them_apart_from_timed_ones(folder):
    (row,) = json.loads(steptime("status", str(folder), "--json", cwd=folder).stdout)
    assert (row["ok"], row["failed"], row["ablations_ok"], row["ablations_failed"]) == (0, 0, 2, 1)
    assert row["last_launch_at"] == "2026-01-01T00:00:02.000+00:00"


def test_status_shows_them_where_a_study_has_them(folder):
    assert "broken" in steptime("status", str(folder), cwd=folder).stdout


def test_a_trace_of_what_was_not_taken_apart_is_refused_with_what_to_do(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={"name": "x"})
    store.add_trial(TRIAL)
    said = steptime("export", str(store.path), "--to", "chrome", cwd=tmp_path, check=2).stderr
    assert "breakdown=true" in said
    assert "Traceback" not in said


def test_one_trial_of_tables_is_refused(folder):
    assert "--to chrome" in steptime("export", str(folder), "--trial", TRIAL.id, cwd=folder, check=2).stderr
