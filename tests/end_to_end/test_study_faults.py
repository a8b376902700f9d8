"""What goes wrong on real machines: nothing measured is lost, and the user is told what to do."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from program import STUDY, launches, report, start, steptime, write_study

from living_processes import all_have_left

LONG = STUDY.replace("launches: {min: 3, max: 3}", "launches: {min: 4, max: 4}") + "equivalence: {enabled: false}\n"
"""Eight launches, and nothing beside them."""
ENDLESS = LONG.replace("{min: 4, max: 4}", "{min: 100, max: 100}")
"""So many that no machine has done them before a signal comes."""


def wait_for_launches(results: Path, count: int, running: subprocess.Popen[str], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and running.poll() is None:
        if len(launches(results)) >= count:
            return
        time.sleep(0.05)
    said = running.communicate()[1] if running.poll() is not None else ""
    pytest.fail(f"no {count} launches in time; exit code {running.poll()}\n{said}")


def resumed(folder: Path, results: str = "results") -> list[dict[str, Any]]:
    """Go on with fewer launches, and return all of them once each trial has its own."""
    steptime("run", write_study(folder, LONG), "-o", results, cwd=folder)
    assert all(each["launches"] >= 4 for each in report(folder, results)["trials"])
    return launches(folder / results)


def test_ctrl_c_ends_the_workers_keeps_the_results_and_says_how_to_resume(tmp_path):
    running = start("run", write_study(tmp_path, ENDLESS), "-o", "results", cwd=tmp_path)
    wait_for_launches(tmp_path / "results", 2, running)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "resume with: steptime run small.yaml -o results" in " ".join(said.split())
    assert all_have_left(tmp_path / "results")
    before = launches(tmp_path / "results")
    after = resumed(tmp_path)
    assert all(launch in after for launch in before)


@pytest.mark.costly
def test_kill_9_loses_at_most_the_launch_in_flight(tmp_path):
    running = start("run", write_study(tmp_path, ENDLESS), "-o", "results", cwd=tmp_path)
    wait_for_launches(tmp_path / "results", 3, running)
    running.kill()
    running.communicate()
    before = launches(tmp_path / "results")
    assert len(before) >= 3
    assert all_have_left(tmp_path / "results")
    after = resumed(tmp_path)
    assert all(launch in after for launch in before)


def test_a_half_written_line_is_dropped_and_its_launch_done_again(measured, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(measured / "results", results)
    (records,) = results.glob("trials/reference-single-*/records.jsonl")
    records.write_text(records.read_text()[:-200])
    assert len(launches(results)) == 5
    steptime("run", write_study(tmp_path), "-o", "results", cwd=tmp_path)
    assert len(launches(results)) == 6
    assert {each["launches"] for each in report(tmp_path, "results")["trials"]} == {3}


def test_two_runs_on_one_folder_are_refused(tmp_path):
    running = start("run", write_study(tmp_path, ENDLESS), "-o", "results", cwd=tmp_path)
    try:
        wait_for_launches(tmp_path / "results", 1, running)
        second = steptime("run", "small.yaml", "-o", "results", cwd=tmp_path, check=2)
        assert str(running.pid) in second.stderr
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)


def test_an_unknown_framework_is_answered_with_the_nearest_name_and_its_line(tmp_path):
    study = write_study(tmp_path, STUDY.replace("[reference]", "[refrence, pytroch]"))
    said = steptime("run", study, cwd=tmp_path, check=2).stderr
    assert "small.yaml:6" in said
    assert "did you mean 'reference'" in said
    assert "did you mean 'pytorch'" in said
    assert "Traceback" not in said


def test_an_unknown_workload_is_answered_with_the_nearest_name(tmp_path):
    said = steptime("run", write_study(tmp_path, STUDY.replace("lenet5", "lenet6")), cwd=tmp_path, check=2).stderr
    assert "did you mean 'lenet5'" in said


def test_a_batch_that_does_not_fit_the_memory_is_not_tried_and_a_smaller_one_is_named(tmp_path):
    study = write_study(tmp_path, STUDY.replace("batch_per_worker: 8", "batch_per_worker: 500000000"))
    steptime("run", study, "-o", "results", cwd=tmp_path, check=3)
    trials = report(tmp_path, "results")["trials"]
    assert {each["status"] for each in trials} == {"failed"}
    assert all(re.search(r"does not fit the memory.*batch_per_worker \d+ would fit", each["reason"]) for each in trials)


def test_a_dataset_folder_without_images_is_refused(tmp_path):
    (tmp_path / "pictures").mkdir()
    text = STUDY.replace("batch_per_worker: 8", "dataset: ./pictures\n    batch_per_worker: 8")
    study = write_study(tmp_path, text.replace("synthetic", "native"))
    said = steptime("run", study, cwd=tmp_path, check=2).stderr
    assert "pictures" in said
    assert "Traceback" not in said


def test_a_broken_jpeg_is_named_before_anything_is_launched(tmp_path):
    folder = tmp_path / "pictures" / "a"
    folder.mkdir(parents=True)
    for number in range(40):
        Image.new("L", (28, 28), number).save(folder / f"{number}.jpg")
    (folder / "7.jpg").write_bytes((folder / "7.jpg").read_bytes()[:200])
    text = STUDY.replace("batch_per_worker: 8", "dataset: ./pictures\n    batch_per_worker: 8")
    study = write_study(tmp_path, text.replace("synthetic", "native"))
    said = steptime("run", study, "-o", "results", cwd=tmp_path, check=2).stderr
    assert "7.jpg" in said
    assert not launches(tmp_path / "results")


@pytest.mark.costly
def test_a_hung_launch_is_ended_and_reported_and_the_others_run(tmp_path):
    text = STUDY + "time_limit: 0.05\n"
    study = write_study(tmp_path, text)
    steptime("run", study, "-o", "results", "equivalence.enabled=false", cwd=tmp_path, check=3)
    assert all("time limit of 0.05 s" in each["reason"] for each in report(tmp_path, "results")["trials"])
    assert all_have_left(tmp_path / "results")


@pytest.mark.costly
def test_an_environment_that_does_not_work_fails_its_framework_only(tmp_path):
    text = STUDY.replace("[reference]", "[reference, pytorch]")
    study = write_study(tmp_path, text + "environments: {pytorch: {kind: existing, python: /no/such/python}}\n")
    steptime("run", study, "-o", "results", cwd=tmp_path, check=3)
    trials = report(tmp_path, "results")["trials"]
    assert {(each["framework"], each["status"]) for each in trials} == {("reference", "ok"), ("pytorch", "failed")}
    assert all("/no/such/python" in each["reason"] for each in trials if each["framework"] == "pytorch")


def fill(path: Path) -> None:
    """Write until the disk is full, byte by byte at the end."""
    with path.open("wb", buffering=0) as filler:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk to fill")
def test_a_full_disk_is_reported_and_what_was_measured_stays(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this system does not let root mount a small disk")
    running = start("run", write_study(tmp_path, ENDLESS), "-o", "disk/results", cwd=tmp_path)
    try:
        wait_for_launches(disk / "results", 1, running)
        fill(disk / "filler")
        _, said = running.communicate(timeout=60)
        assert running.returncode != 0
        assert "Traceback" not in said
        assert re.search(r"[Nn]o space left|full", said)
        kept = launches(disk / "results")
        assert kept
        (disk / "filler").unlink()
        after = resumed(tmp_path, "disk/results")
        assert all(launch in after for launch in kept)
    finally:
        running.kill()
        running.communicate()
        all_have_left(disk)
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_folder_that_is_no_results_folder_is_named(tmp_path):
    said = steptime("report", ".", cwd=tmp_path, check=2).stderr
    assert "not a results folder" in said


def test_a_newer_schema_is_refused_with_the_version_to_use(measured, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(measured / "results", results)
    header = json.loads((results / "study.json").read_text())
    (results / "study.json").write_text(json.dumps({**header, "schema": 99, "written_by": "9.9"}))
    assert "steptime 9.9" in steptime("report", "results", cwd=tmp_path, check=2).stderr


def test_the_version_is_printed(tmp_path):
    assert re.fullmatch(r"steptime \d+\.\d+\.\d+\n", steptime("--version", cwd=tmp_path).stdout)


@pytest.mark.sampled
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_every_common_shell(tmp_path, shell):
    # Otherwise the shell that happens to run the tests is looked for.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "steptime" in steptime("--show-completion", shell, cwd=tmp_path, **named).stdout


def test_a_study_of_which_nothing_can_be_run_says_why(tmp_path):
    study = write_study(tmp_path, STUDY.replace("[single, allreduce]", "[fsdp]"))
    said = steptime("run", study, "--dry-run", cwd=tmp_path, check=2).stderr
    assert "no combination of its axes can be run" in said
    assert "no strategy 'fsdp'" in said
