"""Performance models and predictions in a summary: what published papers claim, compared with this study.

The predicting half fills these forms; a summary of a study that asks for none of them has none.
"""

from typing import Literal

from pydantic import Field

from steptime.results.json_form import IntervalOverLaunches, JsonForm


class ModelledStep(JsonForm):
    """One trial's step by one model."""

    trial: str
    model: str
    case: str
    """What the trial is counted with: ``even hosts``, ``2 workers``."""
    modelled_s: float
    measured_s: IntervalOverLaunches
    ratio: float
    """Modelled divided by measured."""


class ModelError(JsonForm):
    """How far one model is from the measured steps of one case."""

    model: str
    case: str
    trials: int
    ratio: IntervalOverLaunches
    """Modelled divided by measured: geometric mean over trials, with an interval by how they differ."""
    median_error: float
    """Of |ratio - 1|."""
    largest_error: float


class FrameworkImbalance(JsonForm):
    """The measured load-imbalance factor of one framework: longest over mean computing of a step."""

    framework: str
    case: str
    trials: int
    factor: IntervalOverLaunches


class Limit(JsonForm):
    """The part of a step that takes longest, over the trials of one case."""

    case: str
    trials: int
    part: str
    share: IntervalOverLaunches
    """Of the step: mean over trials, with an interval by how they differ."""


class Remedy(JsonForm):
    """How many times as fast a step would be without one of its parts: geometric mean over trials."""

    remedy: str
    case: str
    trials: int
    speedup: IntervalOverLaunches
    most: float
    """Of any trial."""
    most_trial: str


class ModelComparison(JsonForm):
    """One family of performance models against the measured steps of a study."""

    family: Literal["load_imbalance", "s_sgd"]
    steps: list[ModelledStep] = Field(default_factory=list)
    errors: list[ModelError] = Field(default_factory=list)
    best: dict[str, str] = Field(default_factory=dict)
    """By case, the model with the smallest median error."""
    imbalance: list[FrameworkImbalance] = Field(default_factory=list)
    limits: list[Limit] = Field(default_factory=list)
    remedies: list[Remedy] = Field(default_factory=list)
    left_out: list[str] = Field(default_factory=list)
    """With reasons."""


class PredictedConfiguration(JsonForm):
    """A predicted configuration, with intervals of 90 %."""

    framework: str
    strategy: str
    workload: str
    batch_per_worker: int
    workers: int
    throughput_samples_per_s: IntervalOverLaunches | None
    efficiency: IntervalOverLaunches | None
    """Relative to one worker with the same batch, predicted too."""
    refused: str | None = None


class EfficiencyRange(JsonForm):
    """Predicted efficiencies of one framework at one number of workers, over workloads and batches."""

    framework: str
    strategy: str
    workers: int
    configurations: int
    least: PredictedConfiguration
    most: PredictedConfiguration


class PublishedPoint(JsonForm):
    """A published efficiency with those predicted at the same number of workers."""

    claim: str
    source: str
    machine: str
    workers: int
    published: float
    predicted: list[PredictedConfiguration]
    inside: int
    """How many predicted intervals hold it."""


class StudyPrediction(JsonForm):
    """What a study predicts from its own measurements."""

    conditions: str
    """The predicted hosts."""
    measured_workers: int
    points: list[PredictedConfiguration] = Field(default_factory=list)
    ranges: list[EfficiencyRange] = Field(default_factory=list)
    published: list[PublishedPoint] = Field(default_factory=list)
    refused: str | None = None
