"""Run the real program, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "steptime"]

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
    """Run ``steptime`` to its end; ``check`` is the exit code that is expected, None for any."""
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
