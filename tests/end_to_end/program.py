"""The program as a user types it: in this process, or in one of its own where that is part of the fact."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from steptime.cli.app import run_program

PROGRAM = [sys.executable, "-m", "steptime"]
_READ_EACH_TIME = {"COLUMNS", "STEPTIME_CACHE"}
"""Variables of which nothing is kept in a process."""

STUDY = """\
version: 1
name: small
workloads:
  - name: lenet5
    batch_per_worker: 8
frameworks: [reference]
strategies: [single, allreduce]
loaders: [synthetic]
workers: [1, 2]
exclude: [{strategies: allreduce, workers: 1}]
launches: {min: 3, max: 3}
seconds_per_launch: 0.2
steps: {warmup: 2, min: 5, max: 20}
"""

DIGITS_STUDY = """\
workloads: {name: lenet5, dataset: digits}
frameworks: reference
equivalence: {enabled: false}
"""


def steptime(*arguments: str, cwd: Path, check: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``steptime`` to its end; ``check`` is the exit code that is expected, None for any.

    It runs in this process, which has imported it already, unless other variables are given: what they change may have
    been read before. ``main()``, the signals and the streams around it are tested by ``process`` and ``start``.
    """
    if environment.keys() - _READ_EACH_TIME:
        return process(*arguments, cwd=cwd, check=check, **environment)
    output, errors = io.StringIO(), io.StringIO()
    variables = {"COLUMNS": "100", **environment}
    umask = os.umask(0o022)
    try:
        with (
            contextlib.chdir(cwd),
            mock.patch.dict(os.environ, variables),
            mock.patch.object(sys, "argv", ["steptime", *arguments]),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            code = run_program()
    finally:
        os.umask(umask)
    return _checked(subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue()), check)


def process(*arguments: str, cwd: Path, check: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``steptime`` to its end in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    return _checked(done, check)


def _checked(done: subprocess.CompletedProcess[str], check: int | None) -> subprocess.CompletedProcess[str]:
    if check is not None:
        assert done.returncode == check, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start ``steptime`` and return at once."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_study(folder: Path, text: str = STUDY) -> str:
    """Write a study file and return its name."""
    (folder / "small.yaml").write_text(text)
    return "small.yaml"


def report(folder: Path, results: str) -> dict[str, Any]:
    """Return the JSON report of a results folder."""
    return json.loads(steptime("report", results, "--json", cwd=folder).stdout)


def launches(folder: Path) -> list[dict[str, Any]]:
    """Return every whole launch line of a results folder."""
    lines = [line for path in folder.glob("trials/*/records.jsonl") for line in path.read_text().split("\n")[:-1]]
    return [json.loads(line) for line in lines]
