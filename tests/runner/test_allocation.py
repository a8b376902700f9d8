"""A run in a Slurm job that is about to end; squeue and scontrol are scripts that say what a test wants."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer
from small_study import STUDY
from test_study_run import Notes

from steptime.analysis.summary import summarise
from steptime.cli.app import run_program
from steptime.errors import FolderInUse, Unfinished
from steptime.interruption import Interrupted, obeyed
from steptime.results.progress import PROGRESS, RunProgress, run_progress
from steptime.results.store import Store
from steptime.runner.allocation import RESERVE_S, Allocation
from steptime.runner.plan import plan_study
from steptime.runner.study_run import StudyRun


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files ``left`` and ``refuses`` are what squeue and scontrol say; ``asked`` has what was asked.

    Where it has a file ``ends``, the time until then (seconds since 1970) is what squeue says.
    """
    folder = tmp_path / "slurm"
    folder.mkdir()
    programs = {
        "squeue": f'[ -e {folder}/ends ] && echo "0:$(($(cat {folder}/ends) - $(date +%s)))" || cat {folder}/left',
        "scontrol": f'echo "$@" >>{folder}/asked; [ ! -e {folder}/refuses ] || {{ cat {folder}/refuses >&2; exit 1; }}',
    }
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    (folder / "left").write_text("UNLIMITED\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return folder


@pytest.mark.parametrize(
    ("said", "seconds"), [("1-02:03:04", 93784), ("2:03:04", 7384), ("3:04", 184), ("UNLIMITED", None), ("", None)]
)
def test_the_time_left_is_what_squeue_says_less_a_reserve(slurm, said, seconds):
    (slurm / "left").write_text(said)
    allocation = Allocation("7", clock=lambda: 0.0)
    allocation.ask()
    assert allocation.left_s() == (None if seconds is None else seconds - RESERVE_S)


def test_outside_a_job_there_is_no_allocation():
    assert Allocation.found(environment={}) is None


def test_the_end_of_a_job_interrupts_what_runs(slurm):
    (slurm / "left").write_text(f"0:{round(RESERVE_S)}")
    allocation = Allocation.found()
    with pytest.raises(Interrupted, match="the end of its time"), obeyed(), allocation.interrupted_at_end():
        time.sleep(30.0)


def test_a_job_that_was_given_more_time_meanwhile_goes_on(slurm):
    (slurm / "left").write_text(f"0:{round(RESERVE_S)}")
    allocation = Allocation.found()
    (slurm / "left").write_text("10:00")
    with obeyed(), allocation.interrupted_at_end():
        time.sleep(0.3)
    assert allocation.left_s() > 500


def test_the_early_signal_makes_a_run_ask_how_much_time_is_left(slurm):
    allocation = Allocation.found()
    with obeyed(), allocation.interrupted_at_end():
        (slurm / "left").write_text("10:00")
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
    assert allocation.left_s() is not None


def test_a_job_is_queued_again_so_often_and_no_more(slurm, tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={})
    allocation = Allocation("7", most_requeues=2)
    found = [allocation.requeue(store) for _ in range(3)]
    assert [each.queued for each in found] == [True, True, False]
    assert found[1].sentence.endswith("(2 of at most 2)")
    assert "the most that --requeue allows" in found[2].sentence
    assert (slurm / "asked").read_text() == "requeue 7\n" * 2


def test_a_job_that_slurm_does_not_queue_again_says_why_and_is_not_counted(slurm, tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={})
    (slurm / "refuses").write_text("Requested operation is presently disabled\n")
    refused = Allocation("7", most_requeues=1).requeue(store)
    assert (refused.queued, refused.sentence) == (
        False,
        "Slurm does not queue job 7 again: Requested operation is presently disabled",
    )
    (slurm / "refuses").unlink()
    assert Allocation("7", most_requeues=1).requeue(store).queued


HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def held_by_job(folder: Path, job: str, seconds: float) -> Iterator[Store]:
    """Make a results folder whose lock a run of a job holds for a while."""
    store = Store.create(folder, study_text="", study_json={"name": "x"})
    (store.path / PROGRESS).write_bytes(RunProgress(pid=12, host="n0", job=job).to_json())
    command = [sys.executable, "-c", HOLD, str(store.path / "run.lock"), str(seconds)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "ready\n"
    try:
        yield store
    finally:
        holder.kill()
        holder.communicate()


def test_a_job_that_was_queued_again_waits_for_the_lock_of_its_earlier_start(slurm, tmp_path):
    notes = []
    with held_by_job(tmp_path / "results", "7", 3.0) as store:
        allocation = Allocation.found(environment={"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"})
        allocation.await_own_lock(store, notes.append)
    assert len(notes) == 1
    assert "the start before this one has it" in notes[0]


@pytest.mark.parametrize(("job", "restarts"), [("8", "1"), ("7", "0")])
def test_the_lock_of_another_job_or_of_a_run_beside_this_one_is_not_waited_for(slurm, tmp_path, job, restarts):
    with held_by_job(tmp_path / "results", job, 600.0) as store:
        allocation = Allocation.found(environment={"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": restarts})
        with pytest.raises(FolderInUse):
            allocation.await_own_lock(store, print)


def launches(folder: Path) -> list[tuple[str, int, int, str]]:
    store = Store.open(folder)
    return [(each.trial, each.launch, each.block, each.status) for t in store.trials() for each in store.launches(t.id)]


def test_a_study_that_is_cut_twice_ends_with_the_launches_of_an_uncut_one(slurm, tmp_path):
    (slurm / "left").write_text("1:00")
    study = tmp_path / "small.yaml"
    study.write_text(STUDY.replace("min: 2, max: 2", "min: 3, max: 3"))
    now = [0.0]

    def pass_time() -> None:
        now[0] += 60.0

    for _ in range(2):
        cut = StudyRun(
            plan_study(str(study), [], tmp_path / "cut", None), Notes(pass_time), Allocation("7", clock=lambda: now[0])
        )
        cut.allocation.ask()
        with pytest.raises(
            Unfinished, match="out of time: reference single, lenet5, synthetic loader, 1 worker, launch"
        ):
            cut.run()
        assert cut.kept == 1
    for folder in ("cut", "uncut"):
        StudyRun(plan_study(str(study), [], tmp_path / folder, None), Notes()).run()
    assert launches(tmp_path / "cut") == launches(tmp_path / "uncut")
    assert [place.trial for place in summarise(Store.open(tmp_path / "cut")).ranking] == [
        place.trial for place in summarise(Store.open(tmp_path / "uncut")).ranking
    ]


def test_a_run_out_of_time_queues_its_job_again_and_says_so(slurm, tmp_path, capfd):
    (slurm / "ends").write_text(f"{round(time.time() + RESERVE_S + 3.0)}")
    study = tmp_path / "small.yaml"
    study.write_text(STUDY.replace("min: 1, max: 2", "min: 1000000, max: 1000000"))
    code = run_program(["run", str(study), "-o", str(tmp_path / "results"), "--requeue", "3"])
    assert code == Unfinished.exit_code
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == "Slurm job 7 is queued again and continues there (1 of at most 3)"
    assert launches(tmp_path / "results") == []
    assert run_progress(tmp_path / "results").ended == "interrupted by the end of its time"


def test_a_run_that_is_not_to_be_queued_again_ends_with_the_command_that_resumes_it(slurm, tmp_path, capfd):
    (slurm / "left").write_text(f"0:{round(RESERVE_S) - 5}")
    study = tmp_path / "small.yaml"
    study.write_text(STUDY)
    assert run_program(["run", str(study), "-o", str(tmp_path / "results")]) == Unfinished.exit_code
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == f"resume with: steptime run {study} -o {tmp_path / 'results'}"


class Ringing(BaseModel):
    """A model during whose serialization the time of the job ends."""

    @model_serializer(mode="wrap")
    def ring(self, rest: SerializerFunctionWrapHandler) -> dict[str, object]:
        signal.raise_signal(signal.SIGALRM)
        return rest(self)


@pytest.mark.parametrize("place", ["expansion", "summary"])
def test_a_library_that_hides_the_end_of_the_time_does_not_keep_the_job_from_being_queued_again(
    slurm, tmp_path, capfd, monkeypatch, place
):
    def serialize(_run: StudyRun, *_inputs: object) -> None:
        (slurm / "left").write_text("0:00")
        Ringing().model_dump_json()

    monkeypatch.setattr(StudyRun, {"expansion": "_launch", "summary": "run"}[place], serialize)
    study = tmp_path / "small.yaml"
    study.write_text(STUDY)
    Store.create(tmp_path / "results", study_text="", study_json={})
    code = run_program(["run", str(study), "-o", str(tmp_path / "results"), "--requeue", "3"])
    assert code == Unfinished.exit_code
    assert capfd.readouterr().err.splitlines()[-1].startswith("Slurm job 7 is queued again")
