"""The record of one training, one line in the trial's ``training.jsonl``: every epoch that it took."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from steptime.results.clock_marks import allowed_s
from steptime.results.records import DrawnBatch, StepLoss
from steptime.results.stored_record import (
    STRICT,
    Count,
    Duration,
    Facts,
    Quantity,
    Staleness,
    TrialLaunch,
    WorkerEvidence,
    record_reader,
)
from steptime.units import format_seconds


@dataclass(frozen=True)
class WorkerEpoch:
    """One worker's part of an epoch and of its evaluation."""

    __pydantic_config__ = STRICT

    trained_s: Duration
    """Of all steps of the epoch, without evaluation and checkpoint."""
    evaluated_s: Duration
    saved_s: Duration
    samples: Count
    """That the worker trained on."""
    counted: Count
    """Samples of the validation set that the worker evaluated."""
    correct: Count | None
    """How many of them it got right; None if nothing is right or wrong."""
    loss_sum: float | None
    """Over the counted samples; None if it was no number."""
    learning_rate: Quantity
    """Of the last step."""
    training_loss: float | None
    """Of the last step, on this worker's batch."""
    staleness: Staleness | None = None
    kernel_s: tuple[Duration, Duration] | None = None
    """Between which two durations the kernel's clock has ``trained_s``; None in records from before it was kept, and
    where no message was stamped."""
    losses: list[StepLoss] = field(default_factory=list)
    """Losses behind some of the epoch's steps, which are counted from 1 in the first epoch; like what follows, empty or
    None in records from before it was kept, and where a training went on from a checkpoint."""
    batches: list[DrawnBatch] = field(default_factory=list)
    """Number, size and checksum of the indices of some of the epoch's batches, as of timed launches."""
    drawn: Count | None = None
    """How many batches the process drew in the epoch; None if another process draws them."""

    def clock_mistake(self) -> str | None:
        """Return in what the clock contradicts the kernel, or None."""
        if self.kernel_s is None:
            return None
        least, most = self.kernel_s
        if least - (allowed := allowed_s(most)) <= self.trained_s <= most + allowed:
            return None
        return f"counts {format_seconds(self.trained_s)} in an epoch where the kernel counts {format_seconds(most)}"


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrialLaunch):
    """One training: the launch of one seed, or several that went on from each other.

    The index is that of the seed: the training of the same index of another trial has the same seed. What a launch
    has once, such as its beginning and its duration, is that of the last launch.
    """

    kind = "training"
    written_before: ClassVar = {
        "trial": "launch",
        "seed": "status",
        "steps_per_epoch": "flags",
        "resumed_at": "flags",
        "epochs": "flags",
        "facts": "flags",
        "commands": "cluster",
    }

    seed: Count
    steps_per_epoch: Count
    resumed_at: Count = 0
    """The epoch with which the last launch began."""
    epochs: list[list[WorkerEpoch]] = field(default_factory=list)
    """By epoch, every worker's part by rank; empty where the training failed, which goes on from its checkpoint."""
    facts: Facts = field(default_factory=dict)
    """Of worker 0's session."""
    commands: list[list[str]] = field(default_factory=list)
    """As in a timed launch."""

    def evidence(self) -> Sequence[WorkerEvidence]:
        own = self.epochs[self.resumed_at :]
        return [
            WorkerEvidence(
                rank=rank,
                facts={} if rank else self.facts,
                contradicted=next(filter(None, (each[rank].clock_mistake() for each in own)), None),
                lasted_s=sum(part.trained_s + part.evaluated_s + part.saved_s for part in (each[rank] for each in own)),
            )
            for rank in range(len(self.epochs[0]) if self.epochs else 0)
        ]

    def settings(self) -> Mapping[str, Any]:
        return {"seed": self.seed - self.launch}


def _epochs_fit(run: TrainingRun) -> None:
    """Raise ValueError where a good training has no epoch, or an epoch another number of workers."""
    if run.status != "ok":
        return
    if not run.epochs:
        message = "epochs: a good training has one at least"
        raise ValueError(message)
    for number, workers in enumerate(run.epochs):
        if not workers or len(workers) != len(run.epochs[0]) or not sum(each.counted for each in workers):
            message = f"epochs.{number}: not every worker's part, or nothing was evaluated"
            raise ValueError(message)


read_training = record_reader(TrainingRun, _epochs_fit)


def worker_epoch(record: dict[str, Any]) -> WorkerEpoch:
    """Return a worker's part of an epoch from the line that it wrote; raises KeyError where the line lacks a field."""
    return WorkerEpoch(
        trained_s=record["trained_s"],
        evaluated_s=record["evaluated_s"],
        saved_s=record["saved_s"],
        samples=record["samples"],
        counted=record["counted"],
        correct=record["correct"],
        loss_sum=_number(record["loss_sum"]),
        learning_rate=record["learning_rate"],
        training_loss=_number(record["training_loss"]),
        staleness=record["staleness"],
        kernel_s=None if record.get("kernel_s") is None else tuple(record["kernel_s"]),
        losses=[(step, loss) for step, loss in record.get("losses", [])],
        batches=[(number, samples, checksum) for number, samples, checksum in record.get("batches", [])],
        drawn=record.get("drawn"),
    )


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
