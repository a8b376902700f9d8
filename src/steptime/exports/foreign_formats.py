"""Results as other programs read them: step times for Extra-P, and trainings as MLPerf's log.

Extra-P models how a number grows with parameters; its JSON Lines have one measurement a line (Calotoiu et al., SC 2013,
https://github.com/extra-p/extrap). MLPerf's log has one event a line behind ``:::MLLOG``
(https://github.com/mlcommons/logging).

Results folders of one study over time, as the table and configuration that Apache Otava reads for change points.

Otava looks at a whole history and needs many points; ``steptime compare`` looks at two of them and knows their
intervals. Times are of whole launches, which are the unit of either.

POP efficiencies in the JSON that TALP-Pages reads, whose `talp ci-report` draws histories and scaling tables.

TALP is the profiler of DLB; TALP-Pages (Barcelona Supercomputing Center) reads what TALP writes: a file for each run,
in a folder for each experiment, of which the runs differ in their resources or in their date.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import steptime
from steptime.analysis.ablation.form import PopEfficiencies
from steptime.analysis.accuracy import accuracy_of, loss_of
from steptime.analysis.pooled_conditions import versions_of
from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import TrialSummary
from steptime.errors import StoreError
from steptime.plain_file import PlainFolder
from steptime.results.accuracy_records import TrainingRun
from steptime.results.jsonlines import json_text
from steptime.results.record_kinds import ABLATION, TIMING, TRAINING
from steptime.results.store import Store
from steptime.statistics.estimate import estimate
from steptime.study.trial import Trial

_PREFIX = ":::MLLOG"
_PER_S = 1000


def export_extrap(store: Store, folder: Path) -> list[Path]:
    """Write ``steps.jsonl``: for each launch its step time in seconds, by workers and batch; return the path.

    What differs beside these is the call path, of which Extra-P makes a model each. Raises StoreError without a launch.
    """
    lines = []
    for trial in store.trials():
        found = estimate([each for each in store.iter_records(TIMING, trial.id) if each.status == "ok"], trial.strategy)
        where = {"params": {"workers": trial.workers, "batch": trial.batch_per_worker}, "callpath": _call_path(trial)}
        lines += [
            json_text({**where, "metric": "step_time_s", "value": exp(each.log_mean)})
            for each in (found.launches if found else [])
        ]
    return _written(store, folder / "steps.jsonl", lines, "launch that timed a step")


def _call_path(trial: Trial) -> str:
    """Return what a trial's curve is of, without a space, which Extra-P would take for a separator."""
    same = trial.model_copy(update={"workers": 1, "batch_per_worker": 1, "servers": 0, "hosts": 1, "cluster": None})
    return f"{trial.framework}/{trial.strategy}/{trial.workload}/{same.id.rpartition('-')[2]}"


def export_mllog(store: Store, folder: Path) -> list[Path]:
    """Write one log of MLPerf for each training that ended well; return the paths. Raises StoreError without any."""
    paths: list[Path] = []
    for trial in store.trials():
        # Of repeated trainings of one seed the last counts, as in the summary.
        for run in {run.seed: run for run in store.records(TRAINING, trial.id) if run.status == "ok"}.values():
            lines = [f"{_PREFIX} {json_text(each)}" for each in _events(trial, run)]
            paths += _written(store, folder / f"{trial.id}-seed{run.seed}.log", lines, "training")
    if not paths:
        message = f"{store.path} has no training that came to its end: a study with train has some"
        raise StoreError(message)
    return paths


def _events(trial: Trial, run: TrainingRun) -> Iterator[dict[str, Any]]:
    """Yield the events of a training; the times of epochs are sums of the slowest worker's."""
    now_s = _started_s(run)
    target = trial.training.target_accuracy if trial.training else None
    settings = {
        "submission_benchmark": trial.workload,
        "submission_platform": f"{trial.workers}x{trial.device}",
        "global_batch_size": trial.global_batch,
        "seed": run.seed,
        "opt_name": trial.optimizer.name,
        "opt_base_learning_rate": trial.optimizer.learning_rate,
    }
    spent = sum(_longest(run, number) for number in range(run.resumed_at, len(run.epochs)))
    yield _event(now_s, "init_start", None, "INTERVAL_START")
    for key, value in settings.items():
        yield _event(now_s, key, value)
    now_s += max(0.0, run.wall_s - spent)
    yield _event(now_s, "init_stop", None, "INTERVAL_END")
    yield _event(now_s, "run_start", None, "INTERVAL_START")
    reached = target is None
    for number, workers in enumerate(run.epochs):
        here = {"epoch_num": number + 1}
        trained = max(each.trained_s for each in workers)
        yield _event(now_s, "epoch_start", None, "INTERVAL_START", here)
        yield _event(now_s + trained, "epoch_stop", None, "INTERVAL_END", here)
        yield _event(now_s + trained, "eval_start", None, "INTERVAL_START", here)
        now_s += _longest(run, number)
        accuracy = accuracy_of(workers)
        key, value = ("eval_accuracy", accuracy) if accuracy is not None else ("eval_loss", loss_of(workers))
        yield _event(now_s, key, value, "POINT_IN_TIME", here)
        yield _event(now_s, "eval_stop", None, "INTERVAL_END", here)
        reached = reached or (accuracy is not None and target is not None and accuracy >= target)
    yield _event(now_s, "run_stop", None, "INTERVAL_END", {"status": "success" if reached else "aborted"})


def _longest(run: TrainingRun, epoch: int) -> float:
    return max(each.trained_s + each.evaluated_s + each.saved_s for each in run.epochs[epoch])


def _started_s(run: TrainingRun) -> float:
    started = datetime.fromisoformat(run.started_at)
    return (started if started.tzinfo else started.replace(tzinfo=UTC)).timestamp()


def _event(
    at_s: float, key: str, value: object, kind: str = "POINT_IN_TIME", metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "namespace": "",
        "time_ms": round(at_s * _PER_S),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "steptime", "lineno": 0, **(metadata or {})},
    }


def _written(store: Store, path: Path, lines: list[str], what: str) -> list[Path]:
    if not lines:
        message = f"{store.path} has no {what}"
        raise StoreError(message)
    PlainFolder(path.parent).write(path, ("\n".join(lines) + "\n").encode())
    return [path]


_TABLE, _SETTINGS = "otava.csv", "otava.yaml"
_TIME, _FOLDER, _VERSION = "time", "folder", "steptime"
_DOWN_IS_BETTER = -1


def export_history(stores: Sequence[Store], folder: Path) -> list[Path]:
    """Write the history of step times in ``stores`` to ``folder``; return the paths of the table and of its settings.

    A row of the table is a results folder, oldest first: when its last launch began, its path, the version of steptime,
    and for each trial the step time in seconds (empty where the folder lacks the trial). ``otava analyze`` takes the
    settings: a test for each trial that every folder has, since Otava reads no gaps.

    Raises StoreError when no trial is in all of the folders, or a file cannot be written.
    """
    points = sorted((_point(store) for store in stores), key=lambda point: point[0][_TIME])
    trials = list(dict.fromkeys(name for _, steps in points for name in steps))
    common = [name for name in trials if all(name in steps for _, steps in points)]
    if not common:
        paths = ", ".join(str(store.path) for store in stores)
        message = f"no trial was measured in all of {paths}: a history needs the same study in each folder"
        raise StoreError(message)
    table = io.StringIO()
    writer = csv.DictWriter(table, [_TIME, _FOLDER, _VERSION, *trials], lineterminator="\n", restval="")
    writer.writeheader()
    for facts, steps in points:
        writer.writerow({**facts, **{name: f"{seconds:.9g}" for name, seconds in steps.items()}})
    target = folder / _TABLE
    texts = {target: table.getvalue(), folder / _SETTINGS: _settings(target, common)}
    for path, text in texts.items():
        PlainFolder(folder).write(path, text.encode())
    return list(texts)


def _point(store: Store) -> tuple[dict[str, str], Mapping[str, float]]:
    """Return the facts and the step times of one results folder."""
    steps, started, version = {}, [""], ""
    for trial in store.trials():
        launches = [each for each in store.iter_records(TIMING, trial.id) if each.status == "ok"]
        found = estimate(launches, trial.strategy)
        if found is not None:
            steps[trial.id] = found.mean
            started += [each.started_at for each in launches]
            version = versions_of(launches[-1])["steptime"]
    return {_TIME: max(started), _FOLDER: str(store.path), _VERSION: version}, steps


def _settings(table: Path, trials: Sequence[str]) -> str:
    """Return Otava's configuration: a test for each trial, whose metric is better when it is smaller."""
    tests = {
        trial: {
            "type": "csv",
            "file": str(table.absolute()),
            "time_column": _TIME,
            "attributes": [_FOLDER, _VERSION],
            "metrics": {"step_time_s": {"column": trial, "direction": _DOWN_IS_BETTER, "scale": 1.0}},
            "csv_options": {"delimiter": ",", "quote_char": '"'},
        }
        for trial in trials
    }
    written = io.StringIO()
    YAML(typ="safe").dump({"tests": tests}, written)
    return written.getvalue()


_FORM = "3.8"
"""The version of DLB whose form this is; TALP-Pages chooses its reader by the first two numbers."""
_SAMPLES = 1_000_000
"""Times are of as many steps as process so many samples, so that a speed-up is always one of throughput."""
_NS = 1e9
_NOT_COUNTED = 0
"""Of hardware counters: TALP-Pages takes 0 for a run without them."""


def export_talp(store: Store, folder: Path) -> list[Path]:
    """Write a file for each trial with POP efficiencies below ``folder``; return the paths.

    A folder holds the trials of one scaling curve, its reference of fewer workers among them. Raises StoreError when
    no trial has efficiencies, or a file cannot be written.
    """
    trials = {each.id: each for each in summarise(store).trials if each.pop is not None}
    if not trials:
        message = (
            f"{store.path} holds no POP efficiencies: they need synchronous trials that were broken down; run the "
            "study with breakdown=true"
        )
        raise StoreError(message)
    paths = []
    for name, members in _curves(trials).items():
        for trial in members:
            path = folder / name / f"{trial.id}.json"
            data = json_text(_talp_json(trial, _started_at(store, trial.id)), indent=1) + "\n"
            store.folder_around(path).write(path, data.encode())
            paths.append(path)
    return paths


def _curves(trials: Mapping[str, TrialSummary]) -> dict[str, list[TrialSummary]]:
    """Return the trials of each scaling curve by the curve's name, which is that of a folder."""
    curves: dict[tuple[Any, ...], list[TrialSummary]] = {}
    for trial in trials.values():
        reference = trial.pop.reference if trial.pop else None
        if reference != trial.id or not _is_reference(trial.id, trials.values()):
            key = (trial.framework, trial.strategy, trial.workload, reference, repr(sorted(trial.options.items())))
            curves.setdefault(key, [trials[reference]] if reference and reference != trial.id else [])
            curves[key].append(trial)
    named: dict[str, list[TrialSummary]] = {}
    for key, members in curves.items():
        name = "-".join(key[:3])
        alike = sum(other == name or other.startswith(f"{name}~") for other in named)
        named[f"{name}~{alike + 1}" if alike else name] = members
    return named


def _is_reference(trial_id: str, trials: Iterable[TrialSummary]) -> bool:
    return any(each.pop and each.pop.reference == trial_id and each.id != trial_id for each in trials)


def _started_at(store: Store, trial_id: str) -> str:
    moments = [each.started_at for each in store.records(ABLATION, trial_id)]
    return max(moments, default=datetime.now(UTC).isoformat())


def _talp_json(trial: TrialSummary, started_at: str) -> dict[str, Any]:
    """Return a run as TALP writes it; its processors are those of all workers."""
    pop, step = trial.pop, trial.breakdown.step_s.value_s if trial.breakdown else 0.0
    assert pop is not None  # noqa: S101 - for the type checker: trials without any were left out
    processors = trial.workers * trial.threads
    steps = _SAMPLES / (trial.workers * trial.batch_per_worker)
    return {
        "dlbVersion": f"{_FORM} (the form; written by steptime {steptime.__version__})",
        "timestamp": started_at,
        "resources": {"numCpus": processors, "numNodes": trial.hosts, "numMpiRanks": trial.workers, "numGpus": 0},
        "Application": {"Global": {**_region(pop, trial), **_times(pop, step, steps, processors)}},
    }


def _region(pop: PopEfficiencies, trial: TrialSummary) -> dict[str, Any]:
    """Return the efficiencies of the whole step. TALP's of communication is serialisation x transfer."""
    inside = trial.hosts == 1
    balance = pop.load_balance.value
    return {
        "numCpus": trial.workers * trial.threads,
        "numNodes": trial.hosts,
        "numMpiRanks": trial.workers,
        "avgCpus": float(trial.workers * trial.threads),
        "averageIPC": _NOT_COUNTED,
        "cycles": _NOT_COUNTED,
        "instructions": _NOT_COUNTED,
        "parallelEfficiency": pop.parallel.value,
        "mpiParallelEfficiency": pop.parallel.value,
        "mpiCommunicationEfficiency": pop.communication.value,
        "mpiLoadBalance": balance,
        # Of one host there is nothing between hosts; of several it is not known how imbalance divides.
        "mpiLoadBalanceIn": balance if inside else 1.0,
        "mpiLoadBalanceOut": 1.0 if inside else balance,
        "ompParallelEfficiency": 1.0,
        "ompLoadBalance": 1.0,
        "ompSchedulingEfficiency": 1.0,
        "ompSerializationEfficiency": 1.0,
        "gpuParallelEfficiency": 1.0,
        "gpuLoadBalance": 1.0,
        "gpuCommunicationEfficiency": 1.0,
        "gpuOrchestrationEfficiency": 1.0,
        "deviceOffloadEfficiency": 1.0,
    }


def _times(pop: PopEfficiencies, step_s: float, steps: float, processors: int) -> dict[str, int]:
    """Return nanoseconds of ``steps`` steps; useful and MPI times are sums over processors."""
    elapsed = step_s * steps
    return {
        "elapsedTime": round(_NS * elapsed),
        "usefulTime": round(_NS * pop.useful_s.value * steps * processors),
        "mpiTime": round(_NS * (step_s - pop.useful_s.value) * steps * processors),
    }
