"""The summary of a study: what ``steptime report --json`` prints and every other report draws.

docs/report-json.md describes each key. Keys beyond the contract's are documented there too.

Schema diary (``SCHEMA`` grows by one whenever a key changes its meaning):

1. First version.
2. The step time is the mean of the steps and no longer their median: `low`, `high`, `least` and `most` of `step_time_s`
   are of its `mean`, and throughput, efficiency, ratios and ranks follow it.
"""

from typing import Any, Literal

from pydantic import Field

from steptime.catalog.options import OptionValue, Tuning
from steptime.datasets.dataset import LeftOut
from steptime.measurements.ablation.form import Account, Gap, Imbalance, Phase, PopEfficiencies, StepBreakdown
from steptime.measurements.accuracy.results import AccuracyPlace, TrainingSummary
from steptime.measurements.consistency import SetAside
from steptime.measurements.emulated_cluster import ClusterForm
from steptime.measurements.json_form import NOT_MEASURED, Interval, IntervalOverLaunches, JsonForm
from steptime.measurements.loaders.verdict import LoaderVerdict
from steptime.measurements.model_form import ModelComparison, StudyPrediction
from steptime.measurements.stalls import Stalls
from steptime.measurements.work import Resources, WorkRates
from steptime.study.trial import Trial

SCHEMA = 2

TrialStatus = Literal["ok", "failed", "not_equivalent", "unranked"]


class StepTime(JsonForm):
    """Seconds from one completed update to the next, on the slowest worker; None without a measurement."""

    mean: float | None = None
    """The step time: over all timed steps behind the warm-up, so that batch over step time is samples over seconds."""
    low: float | None = None
    high: float | None = None
    """Of the mean."""
    level: float = 0.95
    """Confidence of the interval."""
    median: float | None = None
    p90: float | None = None
    p99: float | None = None
    """What half, 90 % and 99 % of the steps take at most."""
    least: float | None = None
    most: float | None = None
    """The shortest and the longest mean of a launch."""


class Staleness(JsonForm):
    """How many updates of other workers came between the pull of weights and the update made from them."""

    mean: float
    low: float | None
    high: float | None
    median: int
    p95: int
    max: int
    updates: dict[str, int]
    """How many updates had which staleness, over all workers and launches."""


class Efficiency(JsonForm):
    """Throughput per worker relative to a baseline's; None without a baseline."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None
    """The range that launches gave."""
    baseline_workers: int | None = None
    baseline_strategy: str | None = None


class TrialSummary(JsonForm):
    """One configuration and what its launches gave."""

    id: str
    group: str
    """What it may be ranked in; see ``Trial.group``."""
    framework: str
    framework_version: str | None
    strategy: str
    workload: str
    input_shape: list[int]
    classes: int
    dataset: str | None
    loader: str
    loader_processes: int = 0
    """Helper processes of each worker."""
    device: str
    precision: str
    workers: int
    servers: int
    server_placement: str | None = None
    """None if there are no servers."""
    hosts: int
    threads: int
    batch_per_worker: int
    accumulation: int = 1
    """Micro-batches of a worker's step."""
    environment_name: str | None = None
    """Of the study's named environments; None if the study names none."""
    tuning: Tuning = "documented"
    """The tier of its options."""
    tiers: tuple[Tuning, ...] = ("documented",)
    """The tiers in whose races it is: both, where ``tuned`` changes nothing in a study of both."""
    implementation: str | None = None
    """Who implements the strategy where the framework does not: it takes no part in claims about the framework."""
    options: dict[str, Any]
    varied_options: dict[str, Any]
    """Those options in which trials of this framework, strategy and tier differ within the study."""
    cores_per_worker: int | None = None
    """Cores that a worker and its helpers were pinned to; None in summaries from before it was kept."""
    environment_variables: dict[str, str] = Field(default_factory=dict)
    """What the study set for the processes of the launches."""
    container: str | None = None
    """The command that started the interpreter in a container, as a shell reads it; None if it ran in none."""
    varied_variables: dict[str, str] = Field(default_factory=dict)
    """Those of them in which trials of this framework, strategy and tier differ."""
    launches: int
    """That ended well."""
    failed_launches: int
    steps: int
    """Timed steps after the detected warm-up, over all launches."""
    step_time_s: StepTime
    stalls: Stalls | None = None
    """None if the mean step and the median one agree."""
    throughput_samples_per_s: IntervalOverLaunches[float | None]
    work: WorkRates | None = None
    """Tokens, FLOP/s and MFU; None of a trial whose steps were not timed."""
    resources: Resources | None = None
    """Memory and energy; None of a trial whose steps were not timed."""
    efficiency: Efficiency
    loss_rate_per_s: Interval[float | None] = NOT_MEASURED
    """By how much the loss sank per second of training; negative where it rose."""
    staleness: Staleness | None = None
    """None if updates cannot be stale."""
    phases: dict[str, Phase | None] | None = None
    """Where the time of a step goes, by phase; None without ablation runs. An undetermined phase is None."""
    closure_error: float | None = None
    overlap: float | None = None
    """comm_hidden / communication; None if it is not known or nothing is communicated."""
    imbalance: Imbalance | None = None
    native: list[Account] | None = None
    """What the framework's own timers and marks say, each with the ablation's account; None without any."""
    breakdown: StepBreakdown | None = None
    """All that the ablation runs found, the five above among it."""
    pop: PopEfficiencies | None = None
    """The POP efficiencies of the breakdown, with those between scales; None if there are none."""
    training: TrainingSummary | None = None
    """What the trial's trainings reached; None if steps are timed, or no training has ended."""
    cluster: ClusterForm | None = None
    """The hosts that the launcher made; None if it made none."""
    status: TrialStatus
    """``unranked`` of a trial that was measured and changes what is computed (``reason``)."""
    reason: str | None
    flags: list[str]
    commands: list[list[str]]
    """The exact argument lists of the last launch, one per process."""
    environment: dict[str, Any]
    """Interpreter, Python and package versions of the last launch."""
    noise: dict[str, float | None]
    """Median over launches of what else the machine did."""


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
    """Step time divided by the best's, from launches of the same blocks where there are such."""
    tied_with_best: bool
    launches_to_settle: int | None
    """About how many more launches would make the ratio's interval narrower than 3 % to each side; None if it is."""


class OptionChange(JsonForm):
    """The values of one option in the two tiers."""

    documented: OptionValue
    tuned: OptionValue | None


class TunedTrial(JsonForm):
    """What the tier ``tuned`` changes for one trial, and gains."""

    group: str
    trial: str
    """The tuned one."""
    documented_trial: str | None
    """Its counterpart in the tier ``documented``; None if the study has none."""
    changed: dict[str, OptionChange]
    """By name of the option."""
    speedup: IntervalOverLaunches[float | None] | None
    """Step time of the documented trial divided by that of the tuned one, from launches of the same blocks where there
    are such; None if one of them was not measured."""


class EquivalenceSummary(JsonForm):
    """One check of the equivalence check; fields as in ``records.EquivalenceResult``."""

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


class PublishedRatio(JsonForm):
    """A ratio that somebody published, and the average of the same ratio as measured here."""

    claim: str
    source: str
    machine: str | None = None
    """What it was measured on."""
    published: float | None
    """None if only the direction was published."""
    measured: Interval[float | None]
    least: float | None
    most: float | None
    """Smallest and largest of the ratios that were averaged."""
    pairs: int
    """How many pairs of trials were averaged; 0 where none could be."""


class PaperForm(JsonForm):
    """The paper whose question the study asks."""

    title: str
    authors: str
    year: int
    address: str


class SiteForm(JsonForm):
    """One set of hosts that launches ran on."""

    hosts: list[str]
    """The names of all hosts that the run could use."""
    sources: list[str]
    """Who named them: ``the study``, ``Slurm job 7``, …"""
    launches: int
    """Timed launches that ended well."""
    blocks: list[int]
    """The blocks of these launches, in order; no other site has launches in them."""


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
    """The fingerprint of the machine that measured."""
    trials: list[TrialSummary]
    ranking: list[RankedTrial]
    tier_ranking: dict[Tuning, list[RankedTrial]] = Field(default_factory=dict)
    """The ranking within each tier; empty where the study races one."""
    tuned: list[TunedTrial] = Field(default_factory=list)
    """Every tuned trial against its documented counterpart."""
    gaps: list[Gap] = Field(default_factory=list)
    """Of every trial that was broken down against the first such one of its group, as ranked."""
    loaders: list[LoaderVerdict] = Field(default_factory=list)
    """Who limits, loader or training, wherever both were measured alone."""
    accuracy: list[AccuracyPlace] = Field(default_factory=list)
    """The trained trials of each workload and dataset, most accurate first."""
    sites: list[SiteForm] = Field(default_factory=list)
    """The sets of hosts that launches ran on, in the order of their blocks; empty where the study names no hosts."""
    equivalence: list[EquivalenceSummary]
    published: list[PublishedRatio] = Field(default_factory=list)
    models: list[ModelComparison] = Field(default_factory=list)
    """Performance models that the study asks for; empty until the predicting half adds them."""
    prediction: StudyPrediction | None = None
    """What the study predicts; None if it asks for nothing, and until the predicting half adds it."""
    datasets: list[DatasetForm] = Field(default_factory=list)
    """The user's folders of images; left out without any."""
    skipped: list[str]
    """Impossible combinations, one line per reason."""
    problems: list[str]
    """``set_aside`` in sentences."""
    set_aside: list[SetAside] = Field(default_factory=list)
    """Lines of records that no number rests on."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``steptime report --json``."""
        data = self.model_dump(mode="json", exclude=None if self.datasets else {"datasets"})
        return {"schema": data.pop("schema_"), **data}
