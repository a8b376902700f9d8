"""The launches that train until it is over: one for each seed, each going on from its checkpoint.

``worker/training.py`` writes checkpoints. One may come from somebody else, and the framework's process reads arrays
from it; what older versions pickled in it is not read, since unpickling can run any code.
"""

import json
import os
import statistics
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from steptime.datasets.validation import Split
from steptime.errors import StoreError
from steptime.execution.executor import LaunchResult
from steptime.execution.jobs import TrainingPlan, epoch_steps, training_job
from steptime.execution.progress import Observer
from steptime.execution.run_folder import trial_run_folder
from steptime.plain_file import PlainFolder
from steptime.results.accuracy_records import TrainingRun, WorkerEpoch, worker_epoch
from steptime.results.jsonlines import json_text
from steptime.results.record_kinds import TRAINING
from steptime.results.store import Store
from steptime.results.stored_record import first_mistake
from steptime.runner.block_runner import START_S, AbstractRuns, LaunchProgress, Schedule, StoppingRule
from steptime.runner.trial_runs import TrialInputs
from steptime.study.study import Study
from steptime.study.trial import Trial

GUESS_S = START_S + 60.0
"""A guess of the time that a training takes, until its first epochs have shown it."""
_EPOCHS = "epochs.json"
_PICKLED = ("engine", "scaler", "random")
"""Names of arrays under which older versions kept the state of DeepSpeed's engine, of torch's gradient scaler and of
Paddle's random numbers."""
_LOOK_S = 1.0
_WRITTEN = TypeAdapter(list[list[dict[str, Any]]])
_PART = TypeAdapter(WorkerEpoch)


@dataclass(frozen=True)
class TrainingRuns(AbstractRuns[Trial, TrainingRun]):
    """Trainings; the launch ``number`` of every trial has the seed ``trial.seed + number``."""

    inputs: TrialInputs
    splits: Mapping[str, Split]
    """The samples that are trained on and validated with, by trial id."""
    title: str = "Training"
    guess_s: float = GUESS_S

    def job(self, configuration: Trial, number: int) -> dict[str, Any]:
        checkpoint = self._checkpoint(configuration, number)
        loader = self.inputs.loaders[configuration.id]
        plan = TrainingPlan(
            seed=configuration.seed + number,
            steps_per_epoch=epoch_steps(configuration, loader),
            validation=self.splits[configuration.id].validation,
            checkpoint=checkpoint,
            first_epoch=len(self._kept_epochs(configuration, number)),
        )
        return training_job(configuration, self.inputs.workloads[configuration.id], loader, plan)

    def folder(self, configuration: Trial, number: int) -> Path:
        return trial_run_folder(self.inputs.results, configuration, "training", number)

    def record(self, configuration: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> TrainingRun:
        loader = self.inputs.loaders[configuration.id]
        epochs: list[list[dict[str, Any]]] = []
        resumed_at = 0
        if not result.reason:
            seen = [result.collected.epochs(rank) for rank in range(configuration.workers)]
            new = [list(workers) for workers in zip(*seen, strict=True)]
            before = self._kept_epochs(configuration, number)
            # The checkpoint has the new epochs too, where sessions have a state.
            resumed_at = int(new[0][0]["epoch"]) if new else len(before)
            epochs = before[:resumed_at] + new
            with suppress(OSError):
                self._results.remove(self._checkpoint(configuration, number))
        return TrainingRun(
            **fields,
            trial=configuration.id,
            launch=number,
            seed=configuration.seed + number,
            steps_per_epoch=epoch_steps(configuration, loader),
            resumed_at=resumed_at,
            epochs=[[worker_epoch(worker) for worker in workers] for workers in epochs],
            facts=result.collected.worker(0).get("session", {}).get("facts", {}),
            commands=result.outcome.commands,
        )

    def describe(self, configuration: Trial, number: int) -> str:
        training = configuration.training
        what = f", {configuration.optimizer.name}, {training.rate_schedule.name}" if training else ""
        return f"{configuration.in_words}{what}, seed {configuration.seed + number}"

    @contextmanager
    def followed(self, configuration: Trial, number: int, observer: Observer) -> Iterator[None]:
        """Tell the observer the epoch and the accuracy on worker 0's share, for as long as the launch runs."""
        if refused := unread_part(self._results, self._checkpoint(configuration, number), configuration.workers):
            observer.note(refused)
        over = threading.Event()
        what, path = self.describe(configuration, number), self.folder(configuration, number) / "worker-0.jsonl"
        most = configuration.training.epochs if configuration.training else 0

        def follow() -> None:
            said = ""
            while not over.wait(_LOOK_S):
                now = _latest_epoch(path, most)
                if now and now != said:
                    observer.working_on(f"{what}: {now}")
                    said = now

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def expected_s(self, trial: Trial, number: int) -> float | None:
        """Return the seconds that are left of an interrupted training, by the epochs that it has taken."""
        before = self._kept_epochs(trial, number)
        if not before or trial.training is None:
            return None
        return START_S + _epoch_s(before) * max(0, trial.training.epochs - len(before))

    def kept_progress(self, configuration: Trial, number: int) -> LaunchProgress:
        before = self._kept_epochs(configuration, number)
        most = configuration.training.epochs if configuration.training else 0
        words = f"epoch {len(before)} of {most} is kept" if before else f"none of its {most} epochs was over"
        return LaunchProgress(bool(before), words, START_S + (_epoch_s(before) if before else 0.0))

    @property
    def _results(self) -> PlainFolder:
        return PlainFolder(self.inputs.results.absolute())

    def _kept_epochs(self, trial: Trial, number: int) -> list[list[dict[str, Any]]]:
        return kept_epochs(self._results, self._checkpoint(trial, number), trial.workers)

    def _checkpoint(self, trial: Trial, number: int) -> Path:
        """Return the folder beside the run folder, which is made anew for every launch."""
        return trial_run_folder(self.inputs.results.absolute(), trial, "checkpoint", number)


def kept_epochs(folder: PlainFolder, checkpoint: Path, workers: int) -> list[list[dict[str, Any]]]:
    """Return the epochs that a checkpoint has, each with every worker's part, or none if a launch cannot go on from it.

    Args:
        folder: the results folder.
        checkpoint: a folder in it.
        workers: of the training.
    """
    try:
        epochs = _named_epochs(folder, checkpoint, workers)
    except ValueError:
        return []
    try:
        arrays = [_arrays_of(folder, state) for state in _states(checkpoint, epochs)]
    except (OSError, StoreError, zipfile.BadZipFile):
        return []
    return [] if any(set(_PICKLED) & names for names in arrays) else epochs


def unread_part(folder: PlainFolder, checkpoint: Path, workers: int) -> str | None:
    """Return which part of a checkpoint is not read because it is pickled or has another form, or None."""
    try:
        epochs = _named_epochs(folder, checkpoint, workers)
    except ValueError as error:
        return f"{checkpoint / _EPOCHS} is damaged ({error}) and is not read, so that this training begins again"
    for state in _states(checkpoint, epochs):
        try:
            found = _arrays_of(folder, state).intersection(_PICKLED)
        except (OSError, StoreError, zipfile.BadZipFile):
            continue
        if found:
            return (
                f"{state} holds {min(found)!r} as an older steptime pickled it; that could run any code and is not "
                "read, so that this training begins again"
            )
    return None


def _named_epochs(folder: PlainFolder, checkpoint: Path, workers: int) -> list[list[dict[str, Any]]]:
    """Return the epochs that a checkpoint names, none without a checkpoint; raises ValueError for another form."""
    try:
        text = folder.read(checkpoint / _EPOCHS)
    except (OSError, StoreError):
        return []
    try:
        epochs: list[list[dict[str, Any]]] = _WRITTEN.validate_python(json.loads(text))
        for number, parts in enumerate(epochs):
            if len(parts) != workers or any(part["epoch"] != number for part in parts):
                message = f"epoch {number} is not one of each of {workers} workers"
                raise ValueError(message)
            for part in parts:
                _PART.validate_json(json_text(asdict(worker_epoch(part))))
    except ValidationError as error:
        raise ValueError(first_mistake(error)) from error
    except (KeyError, TypeError, RecursionError) as error:
        message = f"a worker's part lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(message) from error
    return epochs


def _states(checkpoint: Path, epochs: list[list[dict[str, Any]]]) -> list[Path]:
    """Return the files of the state behind the last epoch, of every worker."""
    return [checkpoint / f"state-{len(epochs) - 1}-{rank}.npz" for rank in range(len(epochs[-1]))] if epochs else []


def _arrays_of(folder: PlainFolder, state: Path) -> set[str]:
    """Return the names of the arrays in a file; nothing of them is read."""
    with os.fdopen(folder.open(state, os.O_RDONLY), "rb") as file, zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}


def _epoch_s(epochs: Sequence[Sequence[Mapping[str, Any]]]) -> float:
    """Return the mean seconds of an epoch, of the slowest worker."""
    return statistics.fmean(max(part["trained_s"] + part["evaluated_s"] for part in workers) for workers in epochs)


def _latest_epoch(path: Path, most: int) -> str:
    """Return the last epoch in a worker's records; empty where there is none yet."""
    try:
        lines = [line for line in path.read_text().splitlines() if '"kind": "epoch"' in line]
        last = json.loads(lines[-1]) if lines else None
    except (OSError, ValueError):
        return ""
    if last is None:
        return ""
    if last["correct"] is None:
        reached = f"validation loss {last['loss_sum'] / max(1, last['counted']):.4g}"
    else:
        reached = f"{100 * last['correct'] / max(1, last['counted']):.1f} %"
    return f"epoch {last['epoch'] + 1} of {most}, {reached}"


def training_schedule(
    study: Study, trials: Sequence[Trial], store: Store, runs: TrainingRuns
) -> Schedule[Trial, TrainingRun]:
    """Return the trainings that are still needed, one for each seed.

    A failed one is repeated with its seed, from its checkpoint on. Those that failed in earlier runs are not counted:
    a training that reached its time limit twice goes on with the next run.
    """
    seeds = study.training.seeds if study.training else 0
    records = {trial.id: [run for run in store.records(TRAINING, trial.id) if run.status == "ok"] for trial in trials}

    def prior_s(trial: Trial) -> float | None:
        return runs.expected_s(trial, sum(run.status == "ok" for run in records[trial.id]))

    return Schedule(
        trials,
        StoppingRule(least=seeds, most=seeds),
        seed=f"{study.seed}/training",
        records=records,
        prior_s=prior_s,
    )
