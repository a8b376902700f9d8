"""What ``steptime status`` says of a run that goes on, has ended or was killed, by the results folder alone."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from small_trial import TRIAL

from steptime.cli.app import run_program
from steptime.process_identity import ProcessIdentity
from steptime.results.progress import PROGRESS, RunProgress
from steptime.results.store import Store

RUNNING = RunProgress(
    process=str(ProcessIdentity.own()),
    pid=12,
    host="n0",
    job="7",
    stage="Racing",
    item="pytorch allreduce, lenet5, 2 workers, launch 3",
    done=4,
    least=10,
    most=20,
    least_s=120.0,
    most_s=300.0,
)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences are compared whole, on whatever terminal the tests run."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Store.create(tmp_path / "results", study_text="", study_json={"name": "x"}).path


def said(folder: Path, progress: RunProgress | None, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the verb for a run that was at ``progress`` a minute ago."""
    if progress is not None:
        then = datetime.now(UTC) - timedelta(minutes=1)
        (folder / PROGRESS).write_bytes(replace(progress, at=then.isoformat(timespec="seconds")).to_json())
    assert run_program(["status", str(folder)]) == 0
    return [line.strip() for line in capfd.readouterr().out.splitlines()]


def test_a_running_study_says_what_it_does_and_how_much_is_left(folder, capfd):
    now, stage, *_ = said(folder, RUNNING, capfd)
    assert now.startswith("running now: pytorch allreduce, lenet5, 2 workers, launch 3, for ")
    assert now.endswith("(process 12 on n0, Slurm job 7)")
    assert stage.startswith("Racing: 4 of 10 to 20 done, about ")


def test_a_study_that_ended_says_how(folder, capfd):
    (now, *_) = said(folder, replace(RUNNING, ended="out of time", item=""), capfd)
    assert now.startswith("not running: out of time, ")


def test_a_study_that_was_killed_on_this_host_is_not_running(folder, capfd):
    (now, *_) = said(folder, gone(RUNNING), capfd)
    assert now == "not running: process 12 on n0, Slurm job 7 was killed; rerun steptime run to continue"


def gone(progress: RunProgress) -> RunProgress:
    """Return the progress of a run whose process has ended without saying so."""
    own = ProcessIdentity.own()
    return replace(progress, process=str(replace(own, started=own.started + 1)))


@pytest.mark.parametrize(
    ("progress", "age_s", "note"),
    [
        (gone(RUNNING), 1, "process 12 on n0, Slurm job 7 was killed; rerun steptime run to continue"),
        (RUNNING, 1, "a run still adds to"),
        (RUNNING, 600, "gives no heartbeat: steptime status"),
        (replace(RUNNING, ended="done"), 1, None),
    ],
)
def test_a_report_names_what_its_run_has_still_to_do(folder, capfd, progress, age_s, note):
    Store.open(folder).add_trial(TRIAL)
    (folder / PROGRESS).write_bytes(progress.to_json())
    make_silent(folder, age_s)
    assert run_program(["report", str(folder)]) == 0
    notes = [line for line in capfd.readouterr().err.splitlines() if str(folder) in line]
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def make_silent(folder: Path, seconds: float) -> None:
    """Give the file of progress the age that it has when its run died so long ago."""
    then = time.time() - seconds
    os.utime(folder / PROGRESS, (then, then))


def elsewhere(progress: RunProgress) -> RunProgress:
    """Return the progress of a run on another host."""
    return replace(progress, process=str(replace(ProcessIdentity.own(), boot="of-n0")))


def test_a_run_of_another_host_that_gives_no_sign_of_life_is_not_said_to_run(folder, capfd):
    said(folder, elsewhere(RUNNING), capfd)
    make_silent(folder, 600)
    (now, remedy, *_) = said(folder, None, capfd)
    assert now.startswith("no heartbeat for 10 min ")
    assert now.endswith(f" from process 12 on n0, Slurm job 7, at: {RUNNING.item}")
    assert "if n0 is dead or cut off: rerun steptime run to continue" in remedy
    assert "scontrol requeue 7" in remedy


def test_a_run_of_another_host_in_a_long_launch_runs_as_long_as_it_gives_signs_of_life(folder, capfd):
    (now, *_) = said(folder, elsewhere(RUNNING), capfd)
    assert now.startswith("running now: ")


@pytest.mark.parametrize(
    ("progress", "age_s", "state"),
    [
        (RUNNING, 1, "running"),
        (RUNNING, 600, "silent"),
        (replace(RUNNING, ended="done"), 600, "ended"),
        (replace(RUNNING, process=str(replace(ProcessIdentity.own(), started=1))), 1, "killed"),
    ],
)
def test_programs_are_told_the_state_of_the_run_with_each_trial(folder, capfd, progress, age_s, state):
    Store.open(folder).add_trial(TRIAL)
    said(folder, progress, capfd)
    make_silent(folder, age_s)
    assert run_program(["status", str(folder), "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["run"]["state"], row["run"]["host"], row["run"]["job"]) == (state, "n0", "7")
    assert row["run"]["silent_s"] == pytest.approx(age_s, abs=30)


@pytest.mark.parametrize("damage", ["{", '{"done": "many"}', "[]"])
def test_a_damaged_file_of_progress_is_left_out(folder, capfd, damage):
    (folder / PROGRESS).write_text(damage)
    assert not any("running" in line for line in said(folder, None, capfd))


def test_a_reason_that_trials_share_is_said_once_below_the_table(folder, capfd):
    store = Store.open(folder)
    for workers in (1, 2, 4):
        store.add_trial(TRIAL.model_copy(update={"workers": workers}))
    reason = "not run: the budget was spent before its first launch"
    verdicts = {trial.id: {"status": "failed", "reason": reason} for trial in store.trials()}
    store.put("verdicts", verdicts)
    text = " ".join(said(folder, None, capfd))
    assert text.count(reason) == 1
    assert f"all 3 trials ({', '.join(sorted(verdicts))}): {reason}" in text


@pytest.mark.parametrize("form", ["markdown", "csv", "latex"])
def test_the_launches_of_each_trial_are_in_every_form(folder, capfd, form):
    Store.open(folder).add_trial(TRIAL)
    said(folder, RUNNING, capfd)
    run_program(["status", str(folder), "--format", form])
    assert TRIAL.id.replace("_", "").replace("\\", "") in capfd.readouterr().out.replace("\\", "").replace("_", "")


def test_a_page_of_the_status_begins_with_what_runs(folder, capfd, tmp_path):
    Store.open(folder).add_trial(TRIAL)
    said(folder, RUNNING, capfd)
    run_program(["status", str(folder), "--html", str(tmp_path / "page.html")])
    assert f"running now: {RUNNING.item}" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_cell_of_a_trial_is_cut(folder, capfd, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    Store.open(folder).add_trial(TRIAL.model_copy(update={"options": {"an_option_of_a_long_name": "x" * 20}}))
    lines = said(folder, RUNNING, capfd)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
