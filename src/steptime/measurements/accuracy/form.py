"""What trainings reached, in the form of ``steptime report --json``."""

from typing import Any

from pydantic import Field

from steptime.measurements.json_form import JsonForm


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
    """What the trainings of a trial had reached behind an epoch; those that ended before keep their last value."""

    epoch: int
    """From 1; 0 would be before training."""
    accuracy: OverSeeds | None
    """None if nothing is right or wrong."""
    loss: OverSeeds | None
    """None if no training had a loss that is a number."""
    seconds: float
    """Of training so far, without evaluation and checkpoints: the mean over seeds."""
    learning_rate: float
    """Of the epoch's last step, with the first seed that reached the epoch."""


class TrainingSummary(JsonForm):
    """What the trainings of one trial reached, one for each seed."""

    optimizer: dict[str, Any]
    learning_rate: float
    """After the scaling rule."""
    rate_schedule: dict[str, Any]
    """Its ``name`` and ``parameters``."""
    schedule: str
    """A description of the schedule."""
    scaling_rule: str
    warmup_epochs: int
    label_smoothing: float
    epochs: int
    """At most."""
    steps_per_epoch: int
    target_accuracy: float | None
    seeds: list[int]
    """Of the trainings that came to an end."""
    diverged: int
    """Trainings that ended with a loss of NaN or infinity."""
    final_accuracy: OverSeeds | None = None
    """Behind the last epoch of each training, which is the first that reached the target where one did."""
    best_accuracy: OverSeeds | None = None
    """Of the best epoch of each training: it was chosen by looking at the validation set, and is the more optimistic
    the more epochs there are."""
    final_loss: OverSeeds | None = None
    """Of the validation set, without label smoothing."""
    training_s: OverSeeds
    """Of all epochs, without evaluation and checkpoints."""
    reached_target: int | None = None
    """How many of the trainings reached the target; None without one."""
    seconds_to_target: OverSeeds | None = None
    """Of those that reached it only (``reached_target``)."""
    samples_to_target: OverSeeds | None = None
    """Likewise."""
    samples_per_s: OverSeeds
    """Median over all epochs except the first, in which frameworks compile; the first one if there is no other."""
    staleness: float | None = None
    """Mean over all updates; None if none can be stale."""
    curve: list[EpochPoint]
    final_by_seed: dict[int, float] = Field(default_factory=dict)
    """The final accuracy, or the final loss where there is none, by seed."""


class AccuracyPlace(JsonForm):
    """A trained trial against the best of its group."""

    group: str
    rank: int
    trial: str
    difference_to_best: OverSeeds | None
    """Final accuracy minus that of the best (final loss if there is no accuracy), over the seeds that both trained;
    None if they share no seed."""
    tied_with_best: bool
    """Whether the interval of the difference holds 0, or there is none."""
