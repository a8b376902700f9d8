"""From the trainings of a trial to what they reached over seeds, and comparisons of trials paired by seed.

What trainings reached, in the form of ``steptime report --json``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from pydantic import Field

from steptime.catalog.workloads.table import LIBRARY
from steptime.results.accuracy_records import TrainingRun, WorkerEpoch
from steptime.results.json_form import JsonForm
from steptime.statistics.interval import LEVEL
from steptime.statistics.simultaneous import critical_value
from steptime.study.trial import Trial


class OverSeeds(JsonForm):
    """The mean of a number over seeds, with Student's 95 % interval; None if one seed leaves no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    least: float | None = None
    """Of the seeds, without any statistics; None if one seed leaves no range."""
    most: float | None = None
    seeds: int


class EpochPoint(JsonForm):
    """What the trainings of a trial had reached after an epoch; those that ended before keep their last value."""

    epoch: int
    """From 1."""
    accuracy: OverSeeds | None
    loss: OverSeeds | None
    seconds: float
    """Of training so far: mean over seeds."""
    learning_rate: float
    """Of the epoch's last step."""


class TrainingSummary(JsonForm):
    """What the trainings of one trial reached, over seeds; docs/learning.md defines the numbers."""

    optimizer: dict[str, Any]
    learning_rate: float
    """After the scaling rule."""
    rate_schedule: dict[str, Any]
    schedule: str
    scaling_rule: str
    warmup_epochs: int
    label_smoothing: float
    epochs: int
    """At most."""
    steps_per_epoch: int
    target_accuracy: float | None
    seeds: list[int]
    """Of ended trainings."""
    diverged: int
    """Trainings with a loss of NaN or infinity."""
    final_accuracy: OverSeeds | None = None
    best_accuracy: OverSeeds | None = None
    final_loss: OverSeeds | None = None
    training_s: OverSeeds
    reached_target: int | None = None
    """How many trainings did."""
    seconds_to_target: OverSeeds | None = None
    samples_to_target: OverSeeds | None = None
    samples_per_s: OverSeeds
    staleness: float | None = None
    """Mean over all updates."""
    curve: list[EpochPoint]
    final_by_seed: dict[int, float] = Field(default_factory=dict)
    """Final accuracy, or loss where there is none."""


class AccuracyPlace(JsonForm):
    """A trained trial against the best of its group."""

    group: str
    rank: int
    trial: str
    difference_to_best: OverSeeds | None
    """Of final accuracy (of final loss if there is none), over the seeds that both trained."""
    tied_with_best: bool


Epoch = Sequence[WorkerEpoch]


def accuracy_of(epoch: Epoch) -> float | None:
    """Return the share of the validation set that is right; None if nothing is right or wrong."""
    if any(each.correct is None for each in epoch):
        return None
    return sum(each.correct or 0 for each in epoch) / sum(each.counted for each in epoch)


def loss_of(epoch: Epoch) -> float | None:
    """Return the mean loss of the validation set; None if it was no number."""
    if any(each.loss_sum is None for each in epoch):
        return None
    return sum(each.loss_sum or 0.0 for each in epoch) / sum(each.counted for each in epoch)


def seconds_of(epoch: Epoch) -> float:
    """Return the seconds of training: those of the slowest worker, for whom all others wait."""
    return max(each.trained_s for each in epoch)


def over_seeds(
    values: Sequence[float], *, lowest: float = -math.inf, highest: float = math.inf, family: int = 2
) -> OverSeeds | None:
    """Return the mean of ``values`` with its interval, within the bounds that they cannot leave; None for no values.

    Args:
        values: one of each seed.
        lowest: the least possible value.
        highest: the greatest possible value.
        family: where the values are differences of two of so many trials which are compared with each other, their
            number: all such intervals are then simultaneous.
    """
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return OverSeeds(value=mean, seeds=1)
    half = float(critical_value(len(values) - 1, LEVEL, family)) * stdev(values) / len(values) ** 0.5
    return OverSeeds(
        value=mean,
        low=max(lowest, mean - half),
        high=min(highest, mean + half),
        least=min(values),
        most=max(values),
        seeds=len(values),
    )


def _shares(values: Sequence[float]) -> OverSeeds | None:
    return over_seeds(values, lowest=0.0, highest=1.0)


def _positive(values: Sequence[float]) -> OverSeeds | None:
    return over_seeds(values, lowest=0.0)


def training_summary(trial: Trial, runs: Sequence[TrainingRun]) -> TrainingSummary | None:
    """Return what the good ``runs`` of ``trial`` reached; None if it is not trained or has none."""
    training = trial.training
    good = list({run.seed: run for run in runs if run.status == "ok"}.values())
    if training is None or not good:
        return None
    finals = {run.seed: accuracy_of(run.epochs[-1]) for run in good}
    accuracies = [final for final in finals.values() if final is not None]
    losses = {run.seed: loss_of(run.epochs[-1]) for run in good}
    shown = finals if accuracies else losses
    return TrainingSummary(
        optimizer=trial.optimizer.model_dump(),
        learning_rate=training.learning_rate(trial.optimizer.learning_rate, trial.global_batch),
        rate_schedule=training.rate_schedule.model_dump(),
        schedule=training.rate_schedule.in_words,
        scaling_rule=training.scaling_rule,
        warmup_epochs=training.warmup_epochs,
        label_smoothing=training.label_smoothing,
        epochs=training.epochs,
        steps_per_epoch=good[0].steps_per_epoch,
        target_accuracy=training.target_accuracy,
        seeds=[run.seed for run in good],
        diverged=sum(loss is None for loss in losses.values()),
        final_accuracy=_shares(accuracies),
        best_accuracy=_shares([max(map(_share, run.epochs)) for run in good]) if accuracies else None,
        final_loss=_positive([loss for loss in losses.values() if loss is not None]),
        training_s=_mean(good, lambda run: sum(map(seconds_of, run.epochs))),
        **_to_target(good, training.target_accuracy),
        samples_per_s=_mean(good, _throughput),
        staleness=_staleness(good),
        curve=_curve(good),
        final_by_seed={seed: value for seed, value in shown.items() if value is not None},
    )


def _mean(runs: Sequence[TrainingRun], value: Callable[[TrainingRun], float]) -> OverSeeds:
    found = _positive([value(run) for run in runs])
    if found is None:
        message = "a trial without trainings has no mean"
        raise ValueError(message)
    return found


def _share(epoch: Epoch) -> float:
    return accuracy_of(epoch) or 0.0


def _samples(epoch: Epoch) -> int:
    return sum(each.samples for each in epoch)


def _to_target(runs: Sequence[TrainingRun], target: float | None) -> dict[str, Any]:
    """Return how many runs reached the accuracy ``target``, and what those took that did."""
    reached = [run for run in runs if target is not None and _share(run.epochs[-1]) >= target]
    return {
        "reached_target": None if target is None else len(reached),
        "seconds_to_target": _positive([sum(map(seconds_of, run.epochs)) for run in reached]),
        "samples_to_target": _positive([float(sum(map(_samples, run.epochs))) for run in reached]),
    }


def _throughput(run: TrainingRun) -> float:
    counted = run.epochs[1:] or run.epochs
    return sum(map(_samples, counted)) / max(sum(map(seconds_of, counted)), 1e-9)


def _staleness(runs: Sequence[TrainingRun]) -> float | None:
    total = late = 0
    for run in runs:
        for epoch in run.epochs:
            for worker in epoch:
                for updates, count in (worker.staleness or {}).items():
                    total, late = total + count, late + int(updates) * count
    return late / total if total else None


def _curve(runs: Sequence[TrainingRun]) -> list[EpochPoint]:
    points = []
    for number in range(max(len(run.epochs) for run in runs)):
        at = [run.epochs[min(number, len(run.epochs) - 1)] for run in runs]
        accuracies = [found for epoch in at if (found := accuracy_of(epoch)) is not None]
        losses = [found for epoch in at if (found := loss_of(epoch)) is not None]
        trained = [sum(map(seconds_of, run.epochs[: number + 1])) for run in runs]
        rate = next(run.epochs[number][0].learning_rate for run in runs if len(run.epochs) > number)
        points.append(
            EpochPoint(
                epoch=number + 1,
                accuracy=_shares(accuracies),
                loss=_positive(losses),
                seconds=fmean(trained),
                learning_rate=rate,
            )
        )
    return points


def accuracy_group(trial: Trial) -> str:
    """Return what must be equal for the accuracies of two trials to be compared."""
    size = "x".join(map(str, trial.input_shape))
    on = trial.training.validation if trial.training else None
    entry = LIBRARY.get(trial.workload)
    usual = "text held out" if entry is not None and entry.of_tokens else "a stratified fifth held out"
    held_out = f"validated on {on}" if on else usual
    return f"{trial.workload} ({size}), {trial.dataset}, {held_out}"


def accuracy_places(trials: Sequence[Trial], found: Mapping[str, TrainingSummary]) -> list[AccuracyPlace]:
    """Return the trained trials of every group, the best final accuracy (or lowest final loss) first.

    A trial is compared with the best by the difference of the two with the same seed, so that the effects of the seed
    (initial weights and the order of samples) cancel. The intervals of all differences of a group are simultaneous.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.id in found:
            groups.setdefault(accuracy_group(trial), []).append(trial)
    places = []
    for group, members in groups.items():
        members.sort(key=lambda trial: _order(found[trial.id]))
        best = found[members[0].id]
        for rank, trial in enumerate(members, 1):
            difference = paired_difference(found[trial.id], best, len(members))
            tied = difference is None or difference.low is None or difference.high is None
            if difference is not None and difference.low is not None and difference.high is not None:
                tied = difference.low <= 0.0 <= difference.high
            places.append(
                AccuracyPlace(
                    group=group, rank=rank, trial=trial.id, difference_to_best=difference, tied_with_best=tied
                )
            )
    return places


def paired_difference(one: TrainingSummary, other: TrainingSummary, family: int = 2) -> OverSeeds | None:
    """Return the final value of ``one`` less that of ``other`` over the seeds that both have; None for no such seed.

    Args:
        one: a trial.
        other: the trial with which it is compared.
        family: as ``over_seeds`` has it.
    """
    shared = sorted(set(one.final_by_seed) & set(other.final_by_seed))
    return over_seeds([one.final_by_seed[seed] - other.final_by_seed[seed] for seed in shared], family=family)


def _order(found: TrainingSummary) -> tuple[float, float]:
    accuracy, loss = found.final_accuracy, found.final_loss
    return (-accuracy.value if accuracy else 0.0, loss.value if loss else float("inf"))
