"""What holds for every launcher; a new one is tested by being listed in the table."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from emulating import skip_where_impossible
from launching import timing_job
from standin import ADAPTER
from system_packages import missing

from living_processes import living_in
from steptime.catalog.manifest import load_manifests
from steptime.errors import LaunchError
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.base import AbstractLauncher
from steptime.launchers.request import Request
from steptime.launchers.table import LAUNCHERS, launcher_named
from steptime.runner.preparation import ready_interpreter

IN_THIS_PROCESS = {"inline"}
"""Launchers that start no process: nothing can be ended, nor survive."""
PORTS = (15_001, 15_002, 15_003, 15_004)


ON_HOSTS = {"allocation", "ray", "slurm", "ssh"}
"""Launchers of hosts that this machine is not: tests/launchers/test_hosts.py has a bed with some."""


def interpreter_of(name: str) -> Path:
    """Return an interpreter with numpy with which the launcher works; skips where there is none."""
    if name != "mpi" or shutil.which("mpiexec"):
        return Path(sys.executable)
    own = ready_interpreter("chainer")
    if own is None:
        pytest.skip(f"no environment of chainer, which brings an mpiexec; {missing('mpi')}")
    return own


@pytest.fixture(params=sorted(set(LAUNCHERS) - ON_HOSTS))
def launcher(request: pytest.FixtureRequest) -> AbstractLauncher:
    """Each launcher that this machine allows."""
    skip_unless_allowed(request.param)
    return launcher_named(request.param)


@pytest.fixture(params=sorted(set(LAUNCHERS) - IN_THIS_PROCESS - ON_HOSTS))
def starter(request: pytest.FixtureRequest) -> AbstractLauncher:
    """Each launcher that starts processes and that this machine allows."""
    skip_unless_allowed(request.param)
    return launcher_named(request.param)


def skip_unless_allowed(name: str) -> None:
    if name == "emulated":
        skip_where_impossible()


def training(folder: Path, launcher: AbstractLauncher, *, workers: int = 1, **fields: Any) -> Request:
    """Stage a short training of the reference."""
    strategy = "single" if workers == 1 else "allreduce"
    job = timing_job("reference", strategy, "lenet5", steps=3, workers=workers, batch=2)
    make_run_folder(folder / "run", load_manifests()["reference"].folder, {**job, **fields}, ["pillow"])
    return Request(folder / "run", interpreter_of(launcher.name), workers, time_limit_s=60.0)


def standing_in(folder: Path, launcher: AbstractLauncher, time_limit_s: float = 60.0, **options: Any) -> Request:
    """Stage a launch of two stand-ins, which do what ``options`` say."""
    source = folder / "frameworks" / "standin"
    source.mkdir(parents=True)
    (source / "adapter.py").write_text(ADAPTER)
    schedule = {"warmup_steps": 1, "seconds": 0.0, "min_steps": 2, "max_steps": 2}
    job = {"schema": 1, "framework": "standin", "strategy": "single", "options": options, "mode": "time"}
    job |= {"device": "cpu", "precision": "fp32"}
    make_run_folder(folder / "run", source, {**job, "schedule": schedule})
    return Request(folder / "run", interpreter_of(launcher.name), 2, time_limit_s=time_limit_s)


def kinds(request: Request, rank: int = 0) -> list[str]:
    lines = (request.folder / f"worker-{rank}.jsonl").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]


def pids(request: Request) -> list[int]:
    """The ids of all workers that ever ran."""
    records = [json.loads(path.read_text().splitlines()[0]) for path in request.folder.glob("worker-*.jsonl")]
    return [record["pid"] for record in records]


def test_a_launcher_is_listed_under_its_own_name_and_says_what_it_is(launcher):
    assert LAUNCHERS[launcher.name] is type(launcher)
    assert 20 < len(launcher.summary) < 100


def test_a_plan_starts_and_writes_nothing_and_is_always_the_same(launcher, tmp_path):
    request = training(tmp_path, launcher)
    before = sorted(tmp_path.rglob("*"))
    assert launcher.plan(request, "mark", PORTS) == launcher.plan(request, "mark", PORTS)
    assert sorted(tmp_path.rglob("*")) == before
    assert not living_in(request.folder)


def test_a_plan_says_what_a_run_starts(launcher, tmp_path):
    request = training(tmp_path, launcher)
    planned = [list(process.argv) for process in launcher.plan(request, "mark", PORTS)]
    assert launcher.run(request).commands == planned


def test_a_launch_that_ends_well_is_ok_and_has_every_record(launcher, tmp_path):
    request = training(tmp_path, launcher)
    outcome = launcher.run(request)
    assert outcome.ok, outcome.reason
    assert outcome.reason is None
    assert outcome.wall_s > 0
    assert kinds(request) == ["process", "session", "warmup", "steps", "threads", "done"]


def test_a_failure_is_an_outcome_with_a_reason_and_its_cause_is_in_the_records(launcher, tmp_path):
    request = training(tmp_path, launcher, precision="bf16")
    outcome = launcher.run(request)
    assert not outcome.ok
    assert "ended with exit code" in outcome.reason
    assert kinds(request) == ["process", "error"]


def test_what_a_launcher_cannot_start_is_refused_before_anything_is_started(launcher, tmp_path):
    request = training(tmp_path, launcher)
    missing = Request(request.folder, tmp_path / "no" / "python", 1)
    with pytest.raises(LaunchError):
        launcher.run(missing)
    assert not list(request.folder.glob("*.jsonl"))


def test_every_process_gets_the_variables_of_the_protocol(starter, tmp_path):
    request = training(tmp_path, starter)
    named = {"RUN", "PARENT", "RUNNER", "ROLE", "WORKERS", "SERVERS", "INTERFACE", "CPUS"}
    named |= {"ROOT_ADDRESS", "WORKER_ADDRESSES", "SERVER_ADDRESSES"}
    for process in starter.plan(request, "mark", PORTS):
        assert {f"STEPTIME_{name}" for name in named} <= set(process.environment)
        assert process.environment["STEPTIME_RUN"] == "mark"
        assert process.environment["OMP_NUM_THREADS"] == "1"
        assert process.environment["PYTHONNOUSERSITE"] == "1"


def test_several_workers_train_together(starter, tmp_path):
    request = training(tmp_path, starter, workers=2)
    outcome = starter.run(request)
    assert outcome.ok, outcome.reason
    assert kinds(request, 0) == kinds(request, 1) == ["process", "session", "warmup", "steps", "threads", "done"]


def test_one_failed_worker_ends_the_others_at_once(starter, tmp_path):
    request = standing_in(tmp_path, starter, fail_at=1, fail_rank=1, hang_rank=0)
    outcome = starter.run(request)
    assert not outcome.ok
    assert outcome.wall_s < 30
    assert kinds(request, 1)[-1] == "error"
    assert not living_in(request.folder)


def test_a_hung_launch_is_ended_at_its_time_limit(starter, tmp_path):
    request = standing_in(tmp_path, starter, time_limit_s=3.0, sleep_s=600)
    outcome = starter.run(request)
    assert "time limit of 3 s" in outcome.reason
    assert len(pids(request)) == 2
    assert not living_in(request.folder)


def test_no_process_survives_a_launch_that_ended_well(starter, tmp_path):
    request = standing_in(tmp_path, starter)
    assert starter.run(request).ok
    assert len(pids(request)) == 2
    assert not living_in(request.folder)
