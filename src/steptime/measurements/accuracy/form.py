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
