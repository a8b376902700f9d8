"""Results as other programs read them: step times for Extra-P, and trainings as MLPerf's log.

Extra-P models how a number grows with parameters; its JSON Lines have one measurement a line (Calotoiu et al., SC 2013,
https://github.com/extra-p/extrap). MLPerf's log has one event a line behind ``:::MLLOG``
(https://github.com/mlcommons/logging).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import Any

from steptime.analysis.accuracy import accuracy_of, loss_of
from steptime.errors import StoreError
from steptime.results.accuracy_records import TrainingRun
from steptime.results.jsonlines import json_text
from steptime.results.record_kinds import TIMING, TRAINING
from steptime.results.store import Store
from steptime.statistics.estimate import estimate
from steptime.study.trial import Trial
from steptime.user_output import EXTRAP, MLLOG, FileKind, write_user_file

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
    return _written(store, folder / "steps.jsonl", lines, "launch that timed a step", EXTRAP)


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
            paths += _written(store, folder / f"{trial.id}-seed{run.seed}.log", lines, "training", MLLOG)
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


def _written(store: Store, path: Path, lines: list[str], what: str, kind: FileKind) -> list[Path]:
    if not lines:
        message = f"{store.path} has no {what}"
        raise StoreError(message)
    write_user_file(path, ("\n".join(lines) + "\n").encode(), kind)
    return [path]
