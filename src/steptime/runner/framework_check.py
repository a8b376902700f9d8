"""The launches by which ``steptime check`` finds out what the contract suite demands of a framework.

A small study of all strategies shows whether each computes what the reference computes, trains with one or two workers,
and whether marks and ablation agree about its step. A second asks for more threads, a third reads a folder of images by
every loader. Then a worker is killed.

What a killed worker leaves behind: its loader's helpers must end by themselves, and the launch must end with it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image
from ruamel.yaml import YAML

from steptime.analysis.ablation.accounts import MARKS
from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import StepBreakdown
from steptime.catalog.choices import NATIVE, SINGLE, STRATEGIES, SYNTHETIC
from steptime.catalog.manifest import Manifest
from steptime.catalog.plugins import OWN
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.datasets.creation import open_dataset
from steptime.datasets.validation import loader_json
from steptime.execution.collected import collect
from steptime.execution.host import usable_cores
from steptime.execution.jobs import TimingSchedule, timing_job
from steptime.execution.launch_request import request_of
from steptime.execution.progress import Observer
from steptime.execution.run_folder import make_run_folder
from steptime.expansion.expansion import skipped_in_words
from steptime.launchers.base import free_ports
from steptime.launchers.orphans import end_marked, marked
from steptime.launchers.process_env import inherited
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import launcher_named
from steptime.plain_file import temporary_folder
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.runner.framework_files import Finding, finding
from steptime.runner.plan import StudyPlan, plan_study
from steptime.runner.preparation import ready_interpreter
from steptime.runner.study_run import StudyRun
from steptime.study.trial import Trial
from steptime.units import format_count
from steptime.validity.verdicts import TrialVerdict, verdicts_of

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


def busy_clause() -> str:
    """``, while 5.2 processes wanted the 2 cores``: why a launch may wait; empty on a machine that is not busy."""
    load, cores = os.getloadavg()[0], len(usable_cores())
    return f", while {load:.1f} processes wanted the {format_count(cores, 'core')}" if load > cores else ""


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


_SMALL = "lenet5"
_LARGEST_GAP = 0.15
"""Of the step: phases that miss more of it in a quick ablation run do not account for the step."""
_LARGEST_DIFFERENCE = 0.15
"""Of the step: marks that are farther from the ablation, with the whole interval, contradict it."""
_WORKERS = (1, 2)
_THREADS = 3 if os.cpu_count() != 3 else 5  # noqa: PLR2004
"""Neither the one thread that a library may think enough, nor the number of cores on most machines."""
_PICTURES, _CLASSES, _SIDE = 48, ("left", "right"), 40
_HELPERS = (0, 2)


def usual_workload(manifest: Manifest) -> str:
    """Return the workload of a check: the first that the framework's own distribution brings, or else LeNet-5."""
    if manifest.provider == OWN:
        return _SMALL
    return next((name for name in LIBRARY if LIBRARY.provider(name) == manifest.provider), _SMALL)


def study_text(manifest: Manifest, workload: str) -> str:
    """Return the study that launches every strategy of a framework once, checks it and breaks its step down."""
    study = {
        "version": 1,
        "name": f"check-{manifest.name}",
        "question": f"Does {manifest.name} train as the reference does?",
        "frameworks": [manifest.name],
        "workloads": [{"name": workload, "batch_per_worker": 16}],
        "strategies": list(manifest.strategies),
        "loaders": [SYNTHETIC.name],
        "workers": list(_WORKERS),
        "breakdown": {"launches": 1, "seconds": 2.0},
        **_BRIEF,
    }
    return _written(study)


_BRIEF = {
    "launches": {"min": 1, "max": 1},
    "seconds_per_launch": 0.2,
    "steps": {"warmup": 3, "min": 5, "max": 50},
}


def threads_study(manifest: Manifest, workload: str) -> str:
    """Return the study that launches every strategy with more threads than a library would start by itself."""
    study = {
        "version": 1,
        "name": f"threads-{manifest.name}",
        "question": f"Does {manifest.name} compute with as many threads as a study asks for?",
        "frameworks": [manifest.name],
        "workloads": [{"name": workload, "batch_per_worker": 4}],
        "strategies": list(manifest.strategies),
        "loaders": [SYNTHETIC.name],
        "workers": list(_WORKERS),
        "threads_per_worker": _THREADS,
        "equivalence": {"enabled": False},
        **_BRIEF,
    }
    return _written(study)


def loaders_study(manifest: Manifest, folder: Path) -> str:
    """Return the study that reads the images in ``folder`` by every loader of a framework."""
    exact = [
        name
        for name, support in manifest.strategies.items()
        if support.max_workers != 1 and STRATEGIES[name].exact and not STRATEGIES[name].servers
    ]
    strategy = (exact or [SINGLE.name])[0]
    study = {
        "version": 1,
        "name": f"loaders-{manifest.name}",
        "question": f"Does {manifest.name} train on the samples of a folder?",
        "frameworks": [manifest.name],
        "workloads": [{"name": _SMALL, "dataset": str(folder), "image": 32, "batch_per_worker": 4}],
        "strategies": [strategy],
        "loaders": [{"name": name, "processes": list(_HELPERS)} for name in manifest.loaders if name != SYNTHETIC.name],
        "workers": 2 if exact else 1,
        **_BRIEF,
    }
    return _written(study)


def _written(study: Mapping[str, Any]) -> str:
    text = StringIO()
    YAML().dump(study, text)
    return text.getvalue()


def write_pictures(folder: Path) -> None:
    """Fill ``folder`` with small pictures of two classes."""
    stream = np.random.default_rng(0)
    for number in range(_PICTURES):
        target = folder / _CLASSES[number % len(_CLASSES)] / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(stream.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        coarse.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC).save(target, quality=95)


def launch_findings(manifest: Manifest, workload: str, observer: Observer) -> list[Finding]:
    """Launch every strategy and loader of a framework, in a scratch folder, and return what its records show.

    Makes the framework's environment if it is not there yet.
    """
    with temporary_folder("check") as folder:
        store, plan = _run(folder / "check", study_text(manifest, workload), observer)
        findings, trials = list(_of_records(store, manifest, plan)), plan.expansion.trials
        store, plan = _run(folder / "threads", threads_study(manifest, workload), observer)
        findings += _about_threads(store, manifest, plan.expansion.trials)
        loader: dict[str, Any] = {"kind": SYNTHETIC.name, "distinct_batches": 1}
        without_images = manifest.contract.without_image_folders
        if without_images:
            findings.append(
                Finding("loaders", "give the samples of the protocol", ok=True, detail=f"no images: {without_images}")
            )
        elif set(manifest.loaders) - {SYNTHETIC.name}:
            write_pictures(folder / "pictures")
            store, plan = _run(folder / "loaders", loaders_study(manifest, folder / "pictures"), observer)
            findings += _about_loaders(store, plan)
            if NATIVE.name in manifest.loaders:
                trials = [_on_pictures(trial) for trial in trials]
                dataset = open_dataset(str(folder / "pictures"), folder / "cache")
                loader = loader_json(dataset, trials[0].input_shape, NATIVE.name, max(_HELPERS))
        interpreter = Path(sys.executable) if manifest.environment == "core" else ready_interpreter(manifest.name)
        if interpreter is not None:
            findings += killed_worker_findings(manifest, trials, loader, interpreter, folder / "killed")
    return findings


def _on_pictures(trial: Trial) -> Trial:
    return trial.model_copy(
        update={"workload": _SMALL, "input_shape": (3, 32, 32), "classes": len(_CLASSES), "batch_per_worker": 4}
    )


def _run(folder: Path, text: str, observer: Observer) -> tuple[Store, StudyPlan]:
    folder.mkdir()
    study, results = folder / "study.yaml", folder / "results"
    study.write_text(text, encoding="utf-8")
    plan = plan_study(str(study), [], results, None)
    StudyRun(plan, observer).run()
    return Store.open(results), plan


def _of_records(store: Store, manifest: Manifest, plan: StudyPlan) -> Iterator[Finding]:
    verdicts = verdicts_of(store)
    launched = {trial.strategy for trial in plan.expansion.trials}
    for name in manifest.strategies:
        if name not in launched:
            yield Finding(
                name, "can be launched here", ok=False, detail="; ".join(skipped_in_words(plan.expansion.skipped))
            )
    for trial in plan.expansion.trials:
        subject, verdict = _subject(trial), verdicts.get(trial.id)
        yield Finding(subject, "computes what the reference computes", ok=not verdict, detail=_reason(verdict))
        if not verdict:
            yield _about_timing(store, trial, subject)
            yield from _about_breakdown(store, trial, subject)


def _subject(trial: Trial) -> str:
    return f"{trial.strategy}, {trial.workers} worker{'s' if trial.workers > 1 else ''}"


def _about_threads(store: Store, manifest: Manifest, trials: Sequence[Trial]) -> Iterator[Finding]:
    capped = min(_THREADS, len(os.sched_getaffinity(0)))
    for trial in trials:
        wrong = [str(launch.reason) for launch in store.launches(trial.id) if launch.status != "ok"]
        for worker in (each for launch in store.launches(trial.id) if launch.status == "ok" for each in launch.workers):
            kind, told = manifest.contract.threads, worker.facts.get("threads")
            if told != (_THREADS if kind == "asked" else capped):
                wrong.append(f"of {_THREADS} threads asked for, facts() of worker {worker.rank} names {told}")
            for pool, size in worker.facts.get("thread_pools", {}).items():
                if size != (capped if kind == "cores" or pool.startswith("openblas") else _THREADS):
                    wrong.append(f"the pool {pool} of worker {worker.rank} has {size} of {_THREADS} threads asked for")
        yield finding(_subject(trial), "computes with the threads that a study asks for", wrong)


def _about_loaders(store: Store, plan: StudyPlan) -> Iterator[Finding]:
    verdicts = verdicts_of(store)
    for reason in skipped_in_words(plan.expansion.skipped):
        yield Finding("loaders", "can be launched here", ok=False, detail=reason)
    for trial in plan.expansion.trials:
        subject, verdict = f"loader {trial.loader}, {trial.loader_processes} helpers", verdicts.get(trial.id)
        yield Finding(subject, "gives the samples of the protocol", ok=not verdict, detail=_reason(verdict))
        if not verdict:
            yield _about_timing(store, trial, subject)


def _reason(verdict: TrialVerdict | None) -> str:
    return verdict["reason"] if verdict else ""


def _about_timing(store: Store, trial: Trial, subject: str) -> Finding:
    failed = [str(launch.reason) for launch in store.launches(trial.id) if launch.status != "ok"]
    if not failed and not any(True for _ in store.launches(trial.id)):
        failed = ["it was not launched"]
    return finding(subject, "trains and is timed", failed)


def _about_breakdown(store: Store, trial: Trial, subject: str) -> Iterator[Finding]:
    ablations = list(store.records(ABLATION, trial.id))
    broken_down = break_down(trial, ablations, [])
    what = "phases of its step sum to the step"
    if broken_down is None:
        reasons = [str(each.reason) for each in ablations] or ["no ablation launch was begun"]
        yield Finding(subject, what, ok=False, detail="; ".join(dict.fromkeys(reasons)))
        return
    missing = [name for name, phase in broken_down.phases.items() if phase is None]
    gap = f"the phases miss {broken_down.closure_error:.0%} of the step"
    unknown = f", {', '.join(missing)} unknown" if missing else ""
    yield Finding(subject, what, ok=broken_down.closure_error <= _LARGEST_GAP, detail=gap + unknown)
    yield finding(subject, "marks agree with the ablation", list(contradictions(broken_down)))


def contradictions(broken_down: StepBreakdown) -> Iterator[str]:
    """Say which phases a framework's marks give otherwise than the ablation, by more than a short run can tell."""
    step_s = broken_down.step_s.value_s
    for account in broken_down.accounts:
        difference = account.difference_s
        if account.source != MARKS or difference is None or difference.low is None or difference.high is None:
            continue
        nearest = max(difference.low, -difference.high, 0.0)
        if nearest > _LARGEST_DIFFERENCE * step_s:
            yield (
                f"{account.phase} takes {account.native_s.value:.2e} s by the marks of marked_step, and "
                f"{account.by_ablation_s.value if account.by_ablation_s else 0.0:.2e} s by the stages"
            )
