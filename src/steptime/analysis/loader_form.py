"""The loader verdict in the form of ``steptime report --json``: every loader alone, and who limits."""

from typing import Literal

from pydantic import Field

from steptime.results.json_form import Interval, JsonForm

Limit = Literal["loader", "training", "undecided"]


class LoaderAlone(JsonForm):
    """What launches of a loader without training gave, over all workers of a launch."""

    launches: int
    first_epoch_samples_per_s: Interval
    later_epochs_samples_per_s: Interval | None
    samples_per_cpu_s: Interval
    """Per processor second of workers and helpers, in later epochs if any."""
    memory_bytes: float
    """Of one worker without helpers."""
    helpers_memory_bytes: float
    """Of the helpers of one worker."""
    page_cache_dropped: bool | None
    """Whether the dataset's files left the page cache before every launch."""


class LoaderRow(JsonForm):
    """One loader of a configuration: alone, and together with the training."""

    trial: str
    loader: str
    processes: int
    dataset: str | None
    alone: LoaderAlone
    together_samples_per_s: Interval | None
    """Of the timed launches."""
    together_samples_per_cpu_s: Interval | None
    step_s: Interval | None
    predicted_step_s: Interval
    """From loader and training alone."""
    limit: Limit
    loading_over_training: Interval
    """A batch of the loader alone over a step of the training alone."""
    waited_share: Interval | None
    """Of the step, what the training alone does not take."""
    workers_per_host: Interval | None
    """That keep the host's processors busy."""
    device_samples_per_s: Interval
    """Speed of a worker's device from which the loader limits."""


class LoaderChange(JsonForm):
    """A change of the loader that would shorten the step, cheapest first."""

    loader: str
    processes: int
    dataset: str | None
    trial: str | None
    """That has the change."""
    predicted_gain: Interval
    """Step time of the first row over the predicted one."""
    measured_gain: Interval | None
    lifts: bool
    """Whether the training is then predicted to be the limit."""


class LoaderVerdict(JsonForm):
    """Who limits one configuration: its loaders or its training."""

    title: str
    framework: str
    strategy: str
    workload: str
    workers: int
    batch_per_worker: int
    training_trial: str
    """With synthetic batches: the training alone."""
    training_s: Interval
    rows: list[LoaderRow]
    changes: list[LoaderChange] = Field(default_factory=list)
    """Of the first row; empty where that does not wait for its loader."""
    cheapest: int | None = None
    """Index in ``changes`` of the first that lifts the limit."""
