"""The shell of the workflow's steps measures a script, compares it with what is stored, and prints Markdown."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ruamel.yaml
from program import PROGRAM
from stored_processes import BEGIN, MS, ddp_steps, process_lines
from test_attached_comparison import a_run

from steptime.attach.record_file import boot_id

WORKFLOW = Path(__file__).parents[2] / "examples" / "ci" / "speed.yml"
TRAIN = "import glob, os, shutil; shutil.move(min(glob.glob('record-*.jsonl')), os.environ['STEPTIME_ATTACH'])"
"""A training that leaves the next of the records that were made before."""


def workflow() -> dict:
    return ruamel.yaml.YAML(typ="safe").load(WORKFLOW)


def shell_of(name: str) -> str:
    (step,) = [step for step in workflow()["jobs"]["speed"]["steps"] if step.get("name") == name]
    return step["run"]


@pytest.fixture
def checkout(tmp_path):
    """A folder with a script and the records of two runs of it, whose steps of 40 ms are 8 ms longer than on main."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "steptime").write_text(f'#!/bin/sh\nexec {shlex.join(map(str, PROGRAM))} "$@"\n')
    (tmp_path / "steptime").chmod(0o700)
    ahead_ms = (time.monotonic_ns() - BEGIN) / MS
    for number in range(2):
        steps = ddp_steps(0, lambda _, late=8.0 + number / 5: [late], clock_ms=ahead_ms)
        lines = process_lines(0, 1, steps, boot=boot_id(), pid=100 + number, environment={})
        (tmp_path / f"record-{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def run(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run the shell of a step as GitHub does."""
    script = folder / "step.sh"
    script.write_text(shell_of(name))
    variables = workflow()["env"] | {"RUNS": "2", "TRAIN": f"{sys.executable} train.py"}
    variables["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
    variables["PATH"] = os.pathsep.join([str(folder), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.costly
def test_a_slower_script_fails_with_a_table_in_the_summary_and_becomes_the_baseline_of_main(checkout):
    (checkout / "speed" / "main").mkdir(parents=True)
    for number in range(2):
        a_run(checkout / "speed" / "main" / str(number + 1), number, number / 5, world=1)
    measured = run(checkout, "Measure")
    assert measured.returncode == 0, measured.stderr
    compared = run(checkout, "Compare")
    assert compared.returncode == 1, compared.stderr
    assert "| own script | FAILED |" in compared.stdout
    assert compared.stdout == (checkout / "summary.md").read_text()
    assert run(checkout, "Keep as the baseline").returncode == 0
    assert sorted(path.name for path in (checkout / "speed" / "main").iterdir()) == ["1", "2"]
    assert not (checkout / "speed" / "new").exists()


@pytest.mark.costly
def test_a_first_run_has_nothing_to_compare_with_and_passes(checkout):
    compared = run(checkout, "Compare")
    assert compared.returncode == 0
    assert "main was not measured yet" in (checkout / "summary.md").read_text()


def test_every_step_with_shell_is_run_here_but_the_installation():
    names = [step["name"] for step in workflow()["jobs"]["speed"]["steps"] if "run" in step]
    assert names == ["Install", "Measure", "Compare", "Keep as the baseline"]
