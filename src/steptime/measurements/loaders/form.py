"""The loader verdict in the form of ``steptime report --json``: every loader alone, and who limits."""

from typing import Literal

from pydantic import Field

from steptime.measurements.json_form import Interval, JsonForm

Limit = Literal["loader", "training", "undecided"]


class LoaderAlone(JsonForm):
    """What launches of a loader without training gave, over all workers of a launch."""

    launches: int
    first_epoch_samples_per_s: Interval
    later_epochs_samples_per_s: Interval | None
    """None if the first epoch took all the time that a launch has."""
    samples_per_cpu_s: Interval
    """Per processor second of workers and helpers, in later epochs where there are any."""
    memory_bytes: float
    """Of one worker, without its helpers."""
    helpers_memory_bytes: float
    """Of the helpers of one worker together."""
    page_cache_dropped: bool | None
    """Whether the dataset's files left the page cache before every launch; None if the system does not say."""


class LoaderRow(JsonForm):
    """One loader of a configuration: alone, and together with the training."""

    trial: str
    loader: str
    processes: int
    dataset: str | None
    alone: LoaderAlone
    together_samples_per_s: Interval | None
    """Of the timed launches; None if there are none."""
    together_samples_per_cpu_s: Interval | None
    step_s: Interval | None
    """Measured, of the timed launches."""
    predicted_step_s: Interval
    """By the input model, from the loader alone and the training alone."""
    limit: Limit
    loading_over_training: Interval
    """Seconds of a batch of the loader alone over those of a step of the training alone."""
    waited_share: Interval | None
    """The part of the measured step that the training alone does not take."""
    workers_per_host: Interval | None
    """Workers that keep the host's processors busy; None if processor seconds were not measured."""
    device_samples_per_s: Interval
    """From what speed of a worker's device on the loader is the limit."""


class LoaderChange(JsonForm):
    """A change of the loader that would shorten the step, from the cheapest to the dearest."""

    loader: str
    processes: int
    dataset: str | None
    trial: str | None
    """The trial that has the change; None if the study has none, so that nothing checks the prediction."""
    predicted_gain: Interval
    """Step time of the first row over the predicted one."""
    measured_gain: Interval | None
    lifts: bool
    """Whether the training, no longer the loader, is predicted to be the limit."""


class LoaderVerdict(JsonForm):
    """Who limits one configuration: its loaders or its training."""

    title: str
    framework: str
    strategy: str
    workload: str
    workers: int
    batch_per_worker: int
    training_trial: str
    """The trial with synthetic batches, which is the training alone."""
    training_s: Interval
    rows: list[LoaderRow]
    changes: list[LoaderChange] = Field(default_factory=list)
    """Against the first row; empty where that does not wait for its loader."""
    cheapest: int | None = None
    """Index in ``changes`` of the first one that lifts the limit; None if none does."""
