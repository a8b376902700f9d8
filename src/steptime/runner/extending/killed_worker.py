"""What a killed worker leaves behind: its loader's helpers must end by themselves, and the launch must end with it."""

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from steptime.catalog.choices import SINGLE, STRATEGIES
from steptime.catalog.manifest import Manifest
from steptime.catalog.workloads.table import build_workload
from steptime.execution.collected import collect
from steptime.execution.host import busy_clause
from steptime.execution.jobs import TimingSchedule, timing_job
from steptime.execution.launch_request import request_of
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.base import free_ports
from steptime.launchers.orphans import end_marked, marked
from steptime.launchers.process_env import inherited
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import launcher_named
from steptime.runner.extending.files import Finding, finding
from steptime.study.trial import Trial

_WITHOUT_END = TimingSchedule(warmup_steps=10_000_000, seconds=0.0, min_steps=1, max_steps=1)
_OPEN_S = 120.0
"""Until all workers have opened their sessions and train."""
_TRAINING_S = 1.0
"""After that, so that the loader has started its helpers."""
_HELPERS_END_S = 10.0
_LAUNCH_ENDS_S = 60.0
_POLL_S = 0.05


def killed_worker_findings(
    manifest: Manifest, trials: Sequence[Trial], loader: Mapping[str, Any], interpreter: Path, folder: Path
) -> Iterator[Finding]:
    """Kill a worker of each strategy, and yield whether anything outlives it.

    Args:
        manifest: of the framework.
        trials: one at most is used of each strategy.
        loader: the job's ``loader``, with helpers where the framework has some.
        interpreter: of the framework's environment.
        folder: of the run folders; made here.
    """
    by_strategy = {trial.strategy: trial for trial in sorted(trials, key=lambda trial: trial.workers)}
    for name, trial in by_strategy.items():
        run = folder / name
        run.mkdir(parents=True)
        request = _request(manifest, trial, loader, interpreter, run)
        if name == SINGLE.name:
            yield finding(name, "a killed worker leaves no helper behind", list(_left_by_worker(manifest, request)))
        if request.workers > 1:
            wrong = list(_left_by_launch(manifest, trial, request))
            yield finding(name, "a launch ends when a worker is killed, and leaves no process behind", wrong)


def _request(manifest: Manifest, trial: Trial, loader: Mapping[str, Any], interpreter: Path, folder: Path) -> Request:
    workload = build_workload(trial.workload, input_shape=trial.input_shape, classes=trial.classes)
    job = timing_job(trial, workload, loader, _WITHOUT_END)
    make_run_folder(folder, manifest.folder, job, manifest.libraries, manifest.name)
    served = trial.model_copy(update={"servers": int(STRATEGIES[trial.strategy].servers)})
    return request_of(
        served, manifest, folder=folder, interpreter=interpreter, cores=(), time_limit_s=_OPEN_S + _LAUNCH_ENDS_S
    )


def _left_by_worker(manifest: Manifest, request: Request) -> Iterator[str]:
    """Kill a worker that no launcher looks after, and yield what runs on."""
    marker = uuid.uuid4().hex
    launcher = launcher_named(manifest.strategies[SINGLE.name].launcher)
    (process,) = launcher.plan(replace(request, isolation="off"), marker, free_ports(2))
    with (request.folder / "worker.launch").open("wb") as output:
        worker = subprocess.Popen(
            process.argv,
            cwd=request.folder,
            env={**inherited(os.environ), **process.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        pids = _training(request, lambda: worker.poll() is None)
        if pids is None:
            yield f"it did not train: {_why(request)}"
            return
        time.sleep(_TRAINING_S)
        if worker.poll() is not None:
            yield f"it did not train: {_why(request)}"
            return
        os.kill(pids["worker-0"], signal.SIGKILL)
        worker.wait()
        deadline = time.monotonic() + _HELPERS_END_S
        while marked(marker) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for left in marked(marker):
            yield f"{_command_of(left.pid)} still runs {_HELPERS_END_S:.0f} s later; end it with its parent (tether.py)"
    finally:
        end_marked(marker)
        worker.wait()


def _left_by_launch(manifest: Manifest, trial: Trial, request: Request) -> Iterator[str]:
    """Kill the last worker of a launch, and yield whether the launch hangs, succeeds, or leaves processes behind."""
    outcomes: list[LaunchOutcome] = []
    launcher = launcher_named(manifest.launcher_for(trial.strategy, trial.options))
    running = threading.Thread(target=lambda: outcomes.append(launcher.run(request)))
    running.start()
    pids = _training(request, running.is_alive)
    if pids is None:
        request.cancelled.set()
        running.join()
        yield f"it did not train: {_why(request)}"
        return
    time.sleep(_TRAINING_S)
    try:
        started = {child.pid for pid in pids.values() for child in psutil.Process(pid).children(recursive=True)}
        os.kill(pids[f"worker-{request.workers - 1}"], signal.SIGKILL)
    except (psutil.NoSuchProcess, ProcessLookupError):
        request.cancelled.set()
        running.join()
        yield f"it did not train: {_why(request)}"
        return
    running.join(_LAUNCH_ENDS_S)
    if running.is_alive():
        yield f"it runs on for {_LAUNCH_ENDS_S:.0f} s{busy_clause()}"
        request.cancelled.set()
        running.join()
    elif outcomes[0].ok:
        yield "it is reported as having gone well"
    for pid in sorted(started | set(pids.values())):
        if _runs(pid):
            yield f"{_command_of(pid)} still runs"


def _training(request: Request, alive: Callable[[], bool]) -> dict[str, int] | None:
    """Return the process ids of all workers once they train, or None if one has ended before."""
    deadline = time.monotonic() + _OPEN_S
    names = [f"worker-{rank}" for rank in range(request.workers)]
    while alive() and time.monotonic() < deadline:
        records = collect(request.folder).records
        if all("session" in records.get(name, {}) for name in names):
            return {name: int(records[name]["process"]["pid"]) for name in names}
        time.sleep(_POLL_S)
    return None


def _why(request: Request) -> str:
    return collect(request.folder).first_error() or f"no session after {_OPEN_S:.0f} s{busy_clause()}"


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and that its parent has not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command_of(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:120] or f"process {pid}"
    except psutil.Error:
        return f"process {pid}"
