"""The launches by which ``steptime check`` finds out what the contract suite demands of a framework.

A small study of all strategies shows whether each computes what the reference computes, trains with one or two workers,
and whether marks and ablation agree about its step. A second asks for more threads, a third reads a folder of images by
every loader. Then a worker is killed (``killed_worker``).
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from ruamel.yaml import YAML

from steptime.analysis.ablation.accounts import MARKS
from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import StepBreakdown
from steptime.catalog.choices import NATIVE, SINGLE, STRATEGIES, SYNTHETIC
from steptime.catalog.manifest import Manifest
from steptime.catalog.plugins import OWN
from steptime.catalog.workloads.table import LIBRARY
from steptime.datasets.creation import open_dataset
from steptime.datasets.validation import loader_json
from steptime.execution.progress import Observer
from steptime.expansion.expansion import skipped_in_words
from steptime.plain_file import temporary_folder
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.runner.extending.files import Finding, finding
from steptime.runner.extending.killed_worker import killed_worker_findings
from steptime.runner.plan import StudyPlan, plan_study
from steptime.runner.preparation import ready_interpreter
from steptime.runner.study_run import StudyRun
from steptime.study.trial import Trial
from steptime.validity.verdicts import TrialVerdict, verdicts_of

_SMALL = "lenet5"
_CLOSES, _AGREES = "phases of its step sum to the step", "marks agree with the ablation"
_BY_TIMES = {_CLOSES, _AGREES}
"""Findings that compare measured times, and so may be the machine's fault."""
_MORE_LAUNCHES = 3
_LARGEST_GAP = 0.15
"""Of the step: phases that are shown to miss more of it do not account for the step."""
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


def study_text(manifest: Manifest, workload: str, breakdowns: int = 1) -> str:
    """Return the study that launches every strategy of a framework once, checks it and breaks its step down.

    Args:
        manifest: of the framework.
        workload: name of what it trains.
        breakdowns: launches of each trial that take its step apart.
    """
    study = {
        "version": 1,
        "name": f"check-{manifest.name}",
        "question": f"Does {manifest.name} train as the reference does?",
        "frameworks": [manifest.name],
        "workloads": [{"name": workload, "batch_per_worker": 16}],
        "strategies": list(manifest.strategies),
        "loaders": [SYNTHETIC.name],
        "workers": list(_WORKERS),
        "breakdown": {"launches": breakdowns, "seconds": 2.0},
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
        if any(each.what in _BY_TIMES and not each.ok for each in findings):
            # A worker that had to wait for a core in its only launch looks like one that marks its phases wrongly.
            store, plan = _run(folder / "check", study_text(manifest, workload, _MORE_LAUNCHES), observer)
            findings = list(_of_records(store, manifest, plan))
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
    folder.mkdir(exist_ok=True)
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
    what = _CLOSES
    if broken_down is None:
        reasons = [str(each.reason) for each in ablations] or ["no ablation launch was begun"]
        yield Finding(subject, what, ok=False, detail="; ".join(dict.fromkeys(reasons)))
        return
    missing = [name for name, phase in broken_down.phases.items() if phase is None]
    gap, shown_gap = broken_down.closure_error, broken_down.shown_closure_error()
    detail = f"the phases miss {gap:.0%} of the step"
    if shown_gap <= _LARGEST_GAP < gap:
        detail += f", of which {shown_gap:.0%} is shown: this short run leaves the rest open"
    if missing:
        detail += f", {', '.join(missing)} unknown"
    yield Finding(subject, what, ok=shown_gap <= _LARGEST_GAP, detail=detail)
    shown, left_open = contradictions(broken_down)
    yield Finding(subject, _AGREES, ok=not shown, detail="; ".join(shown or left_open))


def contradictions(broken_down: StepBreakdown) -> tuple[list[str], list[str]]:
    """Say which phases a framework's marks give otherwise than the ablation: those shown to, and those that may.

    What may is what the run was too short, or the machine too busy, for intervals to exclude.
    """
    shown, left_open = [], []
    limit_s = _LARGEST_DIFFERENCE * broken_down.step_s.value_s
    for account in broken_down.accounts:
        difference = account.difference_s
        if account.source != MARKS or difference is None or difference.low is None or difference.high is None:
            continue
        sentence = (
            f"{account.phase} takes {account.native_s.value:.2e} s by the marks of marked_step, and "
            f"{account.by_ablation_s.value if account.by_ablation_s else 0.0:.2e} s by the stages"
        )
        if max(difference.low, -difference.high) > limit_s:
            shown.append(sentence)
        elif abs(difference.value) > limit_s:
            left_open.append(f"{sentence}, which this short run leaves open")
    return shown, left_open
