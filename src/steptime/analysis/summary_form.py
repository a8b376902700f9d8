"""The summary of a study: what ``steptime report --json`` prints and every other report draws.

docs/report-json.md describes each key. Keys beyond the contract's are documented there too.

Schema diary (``SCHEMA`` grows by one whenever a key changes its meaning):

1. First version.
2. The step time is the mean of the steps and no longer their median: `low`, `high`, `least` and `most` of `step_time_s`
   are of its `mean`, and throughput, efficiency, ratios and ranks follow it.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from steptime.analysis.ablation.form import Account, Gap, Imbalance, Phase, PopEfficiencies, StepBreakdown
from steptime.analysis.accuracy import AccuracyPlace, TrainingSummary
from steptime.analysis.emulated_cluster import ClusterForm
from steptime.analysis.loader_form import LoaderVerdict
from steptime.analysis.model_form import ModelComparison, StudyPrediction
from steptime.analysis.resources import Resources
from steptime.analysis.work import WorkRates
from steptime.catalog.options import OptionValue, Tuning
from steptime.datasets.dataset import Contents, LeftOut
from steptime.results.consistency import SetAside
from steptime.results.equivalence_records import EquivalenceResult
from steptime.results.json_form import NOT_MEASURED, Interval, IntervalOverLaunches, JsonForm
from steptime.statistics.stalls import Stalls
from steptime.study.trial import Trial

SCHEMA = 2

TrialStatus = Literal["ok", "failed", "not_equivalent", "unranked"]


class StepTime(JsonForm):
    """Seconds from one completed update to the next, on the slowest worker."""

    mean: float | None = None
    """The step time: over all timed steps after the warm-up."""
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    median: float | None = None
    p90: float | None = None
    p99: float | None = None
    least: float | None = None
    most: float | None = None


class Staleness(JsonForm):
    """How many updates of other workers came between the pull of weights and the update made from them."""

    mean: float
    low: float | None
    high: float | None
    median: int
    p95: int
    max: int
    updates: dict[str, int]
    """By staleness, over all workers and launches."""


class Efficiency(JsonForm):
    """Throughput per worker relative to a baseline's."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None
    baseline_workers: int | None = None
    baseline_strategy: str | None = None


class Scaling(JsonForm):
    """Throughput relative to that of fewer workers."""

    workers: int
    strategy: str
    speedup: IntervalOverLaunches


class TrialSummary(JsonForm):
    """One configuration and what its launches gave."""

    id: str
    group: str
    """What it is ranked in."""
    framework: str
    framework_version: str | None
    strategy: str
    workload: str
    input_shape: list[int]
    classes: int
    dataset: str | None
    loader: str
    loader_processes: int = 0
    device: str
    precision: str
    workers: int
    servers: int
    server_placement: str | None = None
    hosts: int
    threads: int
    batch_per_worker: int
    accumulation: int = 1
    environment_name: str | None = None
    tuning: Tuning = "documented"
    tiers: tuple[Tuning, ...] = ("documented",)
    """In whose races it is: both, where ``tuned`` changes nothing."""
    implementation: str | None = None
    """Who implements the strategy, where the framework does not."""
    options: dict[str, Any]
    varied_options: dict[str, Any]
    """Those in which trials of this framework, strategy and tier differ."""
    cores_per_worker: int | None = None
    """That a worker and its helpers were pinned to."""
    environment_variables: dict[str, str] = Field(default_factory=dict)
    """As the study set them."""
    container: str | None = None
    """The command that starts the interpreter in it."""
    varied_variables: dict[str, str] = Field(default_factory=dict)
    """Likewise."""
    launches: int
    """That ended well."""
    failed_launches: int
    steps: int
    """After the detected warm-up, over all launches."""
    step_time_s: StepTime
    stalls: Stalls | None = None
    """None if the mean and the median step agree."""
    throughput_samples_per_s: IntervalOverLaunches[float | None]
    work: WorkRates | None = None
    resources: Resources | None = None
    efficiency: Efficiency
    scaling: Scaling | None = None
    """None without fewer workers."""
    loss_rate_per_s: Interval[float | None] = NOT_MEASURED
    """Decrease of the loss per second of training."""
    staleness: Staleness | None = None
    phases: dict[str, Phase | None] | None = None
    """By name; an undetermined one is None."""
    closure_error: float | None = None
    overlap: float | None = None
    """comm_hidden / communication."""
    imbalance: Imbalance | None = None
    native: list[Account] | None = None
    breakdown: StepBreakdown | None = None
    pop: PopEfficiencies | None = None
    training: TrainingSummary | None = None
    cluster: ClusterForm | None = None
    status: TrialStatus
    """``ok``, ``failed``, ``not_equivalent`` or ``unranked``, with the ``reason``."""
    reason: str | None
    flags: list[str]
    commands: list[list[str]]
    """Of the last launch, one per process."""
    forked: bool = False
    """Of processes that had imported the framework."""
    environment: dict[str, Any]
    """Python and package versions of the last launch."""
    noise: dict[str, float | None]
    """What else the machine did: medians over launches."""


KEYS_OF_TRIAL = tuple(
    key for key in TrialSummary.model_fields if key in Trial.model_fields and key not in ("training", "cluster")
)
"""The keys of a summary that are fields of its trial; the summary's training and cluster are what came of them."""


class RankedTrial(JsonForm):
    """A trial's place in its group."""

    group: str
    rank: int
    trial: str
    ratio_to_best: IntervalOverLaunches[float | None]
    """Step time divided by the best's, from launches of common blocks where there are such."""
    tied_with_best: bool
    launches_to_settle: int | None
    """About how many more would narrow the ratio's interval to 3 % on each side."""


class OptionChange(JsonForm):
    """The values of one option in the two tiers."""

    documented: OptionValue
    tuned: OptionValue | None


class TunedTrial(JsonForm):
    """What the tier ``tuned`` changes for one trial, and gains."""

    group: str
    trial: str
    documented_trial: str | None
    changed: dict[str, OptionChange]
    """By option."""
    speedup: IntervalOverLaunches[float | None] | None
    """Step time of the documented trial divided by that of the tuned one."""


class EquivalenceSummary(JsonForm):
    """One equivalence check; fields as in ``records.EquivalenceResult``."""

    framework: str
    framework_version: str
    strategy: str
    workload: str
    workers: int
    repeats: int
    steps: int
    parameters: int | None
    parameters_expected: int
    first_loss_error: float | None
    last_loss_error: float | None
    weight_error: float | None
    update_error: float | None
    update_rounding: float | None
    passed: bool
    reason: str | None
    options: dict[str, Any] = Field(default_factory=dict)
    environment_variables: dict[str, str] = Field(default_factory=dict)
    crashes: int = 0
    learning_rate: float | None = None
    gradient_error: float | None = None
    gradient_rounding: float | None = None
    rounds: int = 0
    optimizer: str = "sgd"
    checked_at: str | None = None
    kept: bool = False


class PublishedRatio(JsonForm):
    """A published ratio, and the average of the same ratio as measured here."""

    claim: str
    source: str
    machine: str | None = None
    published: float | None
    """None if only the direction was."""
    measured: Interval[float | None]
    least: float | None
    most: float | None
    pairs: int
    """That were averaged."""


class PaperForm(JsonForm):
    """The paper whose question the study asks."""

    title: str
    authors: str
    year: int
    address: str


class SiteForm(JsonForm):
    """One set of hosts that launches ran on."""

    hosts: list[str]
    """That the run could use."""
    sources: list[str]
    """Who named them: ``the study``, ``Slurm job 7``, …"""
    launches: int
    """Timed, that ended well."""
    blocks: list[int]
    """Of these launches; no other site has launches in them."""


class DatasetForm(JsonForm):
    """What of a folder of images was used, and what was not."""

    name: str
    samples: int
    classes: int
    validation: int
    left_out: list[LeftOut]
    sentence: str


class Summary(JsonForm):
    """A study and everything that it found."""

    schema_: int = SCHEMA
    study: str
    question: str
    paper: PaperForm | None = None
    machine: dict[str, Any]
    trials: list[TrialSummary]
    ranking: list[RankedTrial]
    tier_ranking: dict[Tuning, list[RankedTrial]] = Field(default_factory=dict)
    """Within each tier; empty where the study races one."""
    tuned: list[TunedTrial] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)
    """Of every trial with a breakdown against the first ranked one of its group."""
    loaders: list[LoaderVerdict] = Field(default_factory=list)
    accuracy: list[AccuracyPlace] = Field(default_factory=list)
    """Most accurate first."""
    sites: list[SiteForm] = Field(default_factory=list)
    """In the order of their blocks."""
    equivalence: list[EquivalenceSummary]
    published: list[PublishedRatio] = Field(default_factory=list)
    models: list[ModelComparison] = Field(default_factory=list)
    prediction: StudyPrediction | None = None
    datasets: list[DatasetForm] = Field(default_factory=list)
    """Left out without folders of images."""
    skipped: list[str]
    """Impossible combinations, a line per reason."""
    problems: list[str]
    """``set_aside`` in sentences."""
    set_aside: list[SetAside] = Field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``steptime report --json``."""
        data = self.model_dump(mode="json", exclude=None if self.datasets else {"datasets"})
        return {"schema": data.pop("schema_"), **data}


def dataset_forms(datasets: Mapping[str, Any]) -> list[DatasetForm]:
    """Return what of each folder was used, as a run kept it."""
    used = {name: Contents.from_json(value) for name, value in datasets.items()}
    return [
        DatasetForm(
            name=name,
            samples=contents.samples,
            classes=contents.classes,
            validation=contents.validation,
            left_out=list(contents.left_out),
            sentence=contents.in_words(name),
        )
        for name, contents in used.items()
    ]


def equivalence_form(check: EquivalenceResult) -> EquivalenceSummary:
    """Return what a report has of a check."""
    return EquivalenceSummary(**{name: getattr(check, name) for name in EquivalenceSummary.model_fields})
