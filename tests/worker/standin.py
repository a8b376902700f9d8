"""A framework of a few lines of pure Python, and launches of it without any launcher."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from steptime.environments.spec import candidates
from steptime.execution.run_folder import make_run_folder

ADAPTER = '''\
"""Trains nothing: a step adds up numbers, and hangs, fails or is slow where the job's options say so."""

import os
import time

from steptime.worker.framework import Framework
from steptime.worker.session import Session


def open_session(job, context):
    return StandIn(job, context)


def serve(job, context):
    path = os.path.join(context.folder, "served-%s" % context.name)
    with open(path, "w") as file:
        file.write(context.root_address)


class StandIn(Session):
    def __init__(self, job, context):
        self._options = job["options"]
        self._context = context
        self._steps = 0
        self._sum = 0

    def step(self):
        self._steps += 1
        if self._context.rank == self._options.get("hang_rank"):
            time.sleep(600)
        if self._steps == self._options.get("fail_at") and self._context.rank == self._options.get("fail_rank", 0):
            raise RuntimeError("the stand-in fails at step %d" % self._steps)
        self._sum = sum(range(1000))
        slow = self._context.rank == self._options.get("slow_rank")
        time.sleep(self._options.get("sleep_s", 0.001) * (10 if slow else 1))

    def wait(self):
        pass

    def loss(self):
        return float(self._sum)

    def parameter_count(self):
        return 0

    def output_shape(self):
        return [1]

    def get_weights(self):
        return None

    def facts(self):
        return {"framework_version": "0"}

    def close(self):
        with open(os.path.join(self._context.folder, "closed-%d" % self._context.rank), "w"):
            pass

    def abort(self):
        with open(os.path.join(self._context.folder, "aborted-%d" % self._context.rank), "w"):
            pass


FRAMEWORK = Framework(open_session, serve=serve)
'''

SCHEDULE = {"warmup_steps": 3, "seconds": 0.05, "min_steps": 4, "max_steps": 20}


@cache
def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of the version, such as ``3.6``, that starts; None if this machine has none.

    Unlike ``find_python`` it may lack what environments are made with, for the worker needs none of that.
    """
    question = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)"
    for path in candidates(version):
        said = subprocess.run([path, "-I", "-c", question], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.splitlines()[0] == version:
            return Path(said.stdout.splitlines()[1])
    return None


@dataclass(frozen=True)
class Played:
    """How one process ended and what it wrote."""

    code: int
    records: list[dict[str, Any]]
    stderr: str

    @property
    def kinds(self) -> list[str]:
        """The kinds of the records, in their order."""
        return [record["kind"] for record in self.records]

    def record(self, kind: str) -> dict[str, Any]:
        """Return the one record of a kind."""
        (found,) = [record for record in self.records if record["kind"] == kind]
        return found


def fill_standin(folder: Path, *, mode: str = "time", adapter: str = ADAPTER, **options: Any) -> Path:
    """Make a run folder of the stand-in below ``folder`` and return it."""
    source = folder / "frameworks" / "standin"
    source.mkdir(parents=True)
    (source / "adapter.py").write_text(textwrap.dedent(adapter))
    run = folder / "run"
    job = {
        "schema": 1,
        "framework": "standin",
        "strategy": "single",
        "device": "cpu",
        "precision": "fp32",
        "options": options,
        "mode": mode,
        "schedule": {**SCHEDULE, "rounds": [1, 1], "save_weights": True},
    }
    make_run_folder(run, source, job)
    return run


def start(python: Path, run: Path, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
    """Start one process of the launch as one would by hand: nothing is in its environment but ``variables``.

    Started from elsewhere than the run folder, to show that nothing depends on it.
    """
    return subprocess.Popen(
        [python, run / "start.py", run / "job.json"],
        cwd=cwd or "/",
        env={"PATH": os.defpath, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], run: Path, name: str = "worker-0") -> Played:
    """Wait for a process and read back what it wrote."""
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()
    return Played(process.returncode, read_records(run, name), (run / f"{name}.err").read_text())


def play(python: Path, run: Path, role: str = "worker", **variables: str) -> Played:
    """Play a launch of one process."""
    return finish(start(python, run, STEPTIME_ROLE=role, **variables), run, f"{role}-0")


def read_records(run: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of one process."""
    path = run / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_code(python: Path, code: str, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a few lines with ``folder`` on the import path, and return what they print; a failure fails the test."""
    done = subprocess.run(
        [python, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{textwrap.dedent(code)}"],
        cwd="/",
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CORE = Path(sys.executable)
"""For tests of what does not depend on the version."""
