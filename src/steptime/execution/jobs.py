"""The ``job.json`` of a launch, as docs/worker-protocol.md defines it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steptime.catalog.choices import OWN, SYNTHETIC
from steptime.catalog.workloads.layers import Workload
from steptime.study.trial import Trial
from steptime.worker.samples import MASKED_LOSS, steps_per_epoch

SCHEMA = 1


@dataclass(frozen=True)
class TimingSchedule:
    """How many steps a launch runs."""

    warmup_steps: int
    """Run first and never counted: frameworks compile, allocate and rebuild buckets in them."""
    seconds: float
    """Timed seconds aimed for."""
    min_steps: int
    max_steps: int

    def to_json(self) -> dict[str, Any]:
        """The job's ``schedule``."""
        return {
            "warmup_steps": self.warmup_steps,
            "seconds": self.seconds,
            "min_steps": self.min_steps,
            "max_steps": self.max_steps,
        }


_WARM_S = 5.0


def warm_up_s(trial: Trial) -> float:
    """Return for how long a device is warmed up: clocks take seconds to rise and to settle; 0 on processors."""
    return _WARM_S if trial.device == "cuda" else 0.0


def _warm_device(trial: Trial, seconds: float) -> dict[str, float]:
    """Return the part of a schedule by which a device is warmed up; empty where a launch aims for no seconds."""
    return {"warmup_seconds": warm_up_s(trial)} if seconds and warm_up_s(trial) else {}


def timing_job(
    trial: Trial,
    workload: Workload,
    loader: Mapping[str, Any],
    schedule: TimingSchedule,
    pause: float | None = None,
) -> dict[str, Any]:
    """Return the job that times ``trial``.

    Args:
        trial: what to time.
        workload: its workload, built for the trial's input shape and classes.
        loader: the job's ``loader`` object.
        schedule: how long to run.
        pause: behind which part of the timed steps they pause for evidence; None for no pause.
    """
    paused = {} if pause is None else {"pause": pause}
    return {
        **_shared(trial),
        "workload": workload.to_json(),
        "loader": read_by(workload, loader),
        "mode": "time",
        "schedule": {**schedule.to_json(), **_warm_device(trial, schedule.seconds), **paused},
    }


@dataclass(frozen=True)
class AblationSchedule:
    """How long an ablation launch breaks steps down."""

    warmup_steps: int
    """Whole steps that are run first and never counted."""
    seconds: float
    """Time aimed for, shared equally by the stages of the ablation."""
    min_blocks: int = 6
    """Blocks of every stage, however long they take: intervals rest on them."""
    max_blocks: int = 24
    max_steps: int = 200
    """Steps of a stage in one block."""


def ablation_job(
    trial: Trial, workload: Workload, loader: Mapping[str, Any], schedule: AblationSchedule
) -> dict[str, Any]:
    """Return the job that takes the steps of ``trial`` apart; arguments are those of ``timing_job``."""
    return {
        **_shared(trial),
        "workload": workload.to_json(),
        "loader": read_by(workload, loader),
        "mode": "ablation",
        "schedule": {**asdict(schedule), **_warm_device(trial, schedule.seconds)},
    }


def loader_job(trial: Trial, workload: Workload, loader: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the job that takes batches and trains on none, for ``seconds`` of the first epoch and of later ones."""
    return {
        **_shared(trial),
        "workload": workload.to_json(),
        "loader": read_by(workload, loader),
        "mode": "loader",
        "schedule": {"seconds": seconds},
    }


@dataclass(frozen=True)
class TrainingPlan:
    """What a launch of training needs that its trial does not say."""

    seed: int
    """Of the launch; the launches of one trial differ in nothing else."""
    steps_per_epoch: int
    validation: Mapping[str, Any]
    """The validation set: an ``arrays`` dataset, as a loader has it."""
    checkpoint: Path | None
    """The folder that the training goes on from; None for a training that begins anew whenever it is launched."""
    first_epoch: int = 0


def epoch_steps(trial: Trial, loader: Mapping[str, Any]) -> int:
    """Return the steps that every worker of ``trial`` makes in an epoch of what the job's ``loader`` reads."""
    return int(steps_per_epoch(loader["dataset"]["samples"], trial.workers, trial.batch_per_worker))


def training_job(trial: Trial, workload: Workload, loader: Mapping[str, Any], plan: TrainingPlan) -> dict[str, Any]:
    """Return the job that trains ``trial`` until it is over; other arguments are those of ``timing_job``.

    Raises ValueError for a trial without training.
    """
    training = trial.training
    if training is None:
        message = f"{trial.id} is timed, not trained"
        raise ValueError(message)
    rate = training.learning_rate(trial.optimizer.learning_rate, trial.global_batch)
    shared = _shared(trial.with_learning_rate(rate))
    return {
        **shared,
        "seed": plan.seed,
        "workload": workload.to_json(),
        "loader": read_by(workload, loader),
        "mode": "train",
        "training": {
            "epochs": training.epochs,
            "target_accuracy": training.target_accuracy,
            "steps_per_epoch": plan.steps_per_epoch,
            "rate_schedule": training.rate_schedule.model_dump(),
            "warmup_steps": training.warmup_epochs * plan.steps_per_epoch,
            "learning_rate": rate,
            "first_epoch": plan.first_epoch,
            "validation": read_by(workload, {"dataset": plan.validation})["dataset"],
            "checkpoint": str(plan.checkpoint) if plan.checkpoint else None,
        },
    }


def training_replay_job(  # noqa: PLR0913, PLR0917 - as a training, and what is replayed of it
    trial: Trial,
    workload: Workload,
    loader: Mapping[str, Any],
    plan: TrainingPlan,
    rounds: Sequence[int],
    validation_losses: Sequence[float],
) -> dict[str, Any]:
    """Return the job that takes the first steps of a ``training_job`` in ``rounds``, without validation.

    Args:
        trial: the one that was trained.
        workload: and ``loader``, ``plan``: the job's.
        loader: see there.
        plan: see there.
        rounds: of steps.
        validation_losses: behind each epoch, by which some schedules set the learning rate.
    """
    schedule = {"rounds": list(rounds), "validation_losses": list(validation_losses)}
    return {**training_job(trial, workload, loader, plan), "mode": "replay", "schedule": schedule}


def check_job(
    trial: Trial, workload: Workload, rounds: Sequence[int], *, turns: int = 0, save_weights: bool = False
) -> dict[str, Any]:
    """Return the job that checks ``trial``: ``rounds`` of steps on known batches, then ``turns``, without dropout."""
    return {
        **_shared(trial),
        "workload": workload.to_json(dropout=False),
        "loader": {"kind": OWN.name} if workload.own else synthetic_loader(sum(rounds) + turns),
        "mode": "check",
        "schedule": {"rounds": list(rounds), "turns": turns, "save_weights": save_weights},
    }


@dataclass(frozen=True)
class Beginning:
    """Where the training of a replay begins, instead of the weights and batches that its trial begins with."""

    rank: int
    """Of the worker who takes the first turn."""
    weights: Path
    """A file of arrays by their names."""
    batches: list[int]
    """By rank, how many batches are left out."""


def repeated_turn_job(
    trial: Trial, workload: Workload, loader: Mapping[str, Any], beginning: Beginning
) -> dict[str, Any]:
    """Return the job in which each worker takes one turn from a ``beginning``; other arguments are of ``timing_job``.

    Only that of the first one is known to have its weights.
    """
    job = replay_job(trial, workload, loader, [1], turns=True)
    begins = {"weights": str(beginning.weights.absolute()), "batches": beginning.batches}
    return {**job, "begins": begins, "schedule": {**job["schedule"], "first_turn": beginning.rank}}


def replay_job(
    trial: Trial,
    workload: Workload,
    loader: Mapping[str, Any],
    rounds: Sequence[int],
    **schedule: bool,
) -> dict[str, Any]:
    """Return the job that takes the steps of ``timing_job`` in ``rounds``, untimed; other arguments are those.

    With ``turns``, workers take their rounds one after the other; with ``weights=False``, those are not looked at.
    """
    return {
        **_shared(trial),
        "workload": workload.to_json(),
        "loader": read_by(workload, loader),
        "mode": "replay",
        "schedule": {"rounds": list(rounds), **schedule},
    }


def read_by(workload: Workload, loader: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's ``loader`` for a workload: with the token that hides those that it predicts, if it does.

    That is the last one of its vocabulary, which the dataset lacks.
    """
    if "dataset" not in loader or workload.loss != MASKED_LOSS:
        return dict(loader)
    return {**loader, "dataset": {**loader["dataset"], "hidden_by": workload.classes - 1}}


def synthetic_loader(batches: int) -> dict[str, Any]:
    """Return the ``loader`` object of so many random batches, which a worker makes once and trains on in turn."""
    return {"kind": SYNTHETIC.name, "distinct_batches": batches}


def _shared(trial: Trial) -> dict[str, Any]:
    in_parts = {"accumulation": trial.accumulation} if trial.accumulation > 1 else {}
    return {
        **in_parts,
        "schema": SCHEMA,
        "framework": trial.framework,
        "strategy": trial.strategy,
        "options": dict(trial.options),
        "batch_per_worker": trial.batch_per_worker,
        "precision": trial.precision,
        "device": trial.device,
        "threads": trial.threads,
        "environment_variables": dict(trial.environment_variables),
        "seed": trial.seed,
        "optimizer": trial.optimizer.all_settings(),
        "label_smoothing": trial.training.label_smoothing if trial.training else 0.0,
    }
