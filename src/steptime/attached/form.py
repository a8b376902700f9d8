"""What an attached run found, as ``steptime attach --json`` and ``steptime report --json`` (key ``attached``) print it.

Schema diary (``SCHEMA`` grows by one whenever a key changes its meaning):

1. First version.
2. ``forward`` is of passes with gradient; those without are ``no_grad``.
3. With ``device``, steps and parts are by its clock.
"""

from collections.abc import Sequence
from typing import Any, Literal

from steptime.results.json_form import Interval, JsonForm

SCHEMA = 3


class AttachedRank(JsonForm):
    """One process."""

    rank: int
    host: str | None  # None if unknown
    steps: int
    ended: bool | None  # by itself; None if unknown


class AttachedHost(JsonForm):
    """Of that attempt."""

    name: str
    ranks: list[int]
    devices: list[str]


class FewSteps(JsonForm):
    """That have a part."""

    numbers: list[int]
    steps: int
    every: float
    regular: bool
    each_s: Interval[float | None]
    """On its longest rank."""
    others_s: float
    share: float
    """Of time."""
    one_rank: bool  # which exceeds the mean over ranks


class StepPart(JsonForm):
    """Mean over ranks and steps; parts sum to the step."""

    name: str
    """A phase of docs/breakdown.md; ``no_grad`` (forward without gradient); ``call``, ``device_wait`` or
    ``compile`` of a step that is one call; of a gap, what lies before and after it: ``update>input``."""
    gap: bool
    """Whether nothing marks it."""
    time_s: Interval[float | None]
    share: float | None
    """Of the step."""
    gain_s: Interval[float | None]
    """By which steps shrink without it; null if waiting is unknown."""
    ranks_s: list[float | None]
    """Of each rank, in the order of ``ranks``."""
    device_s: float | None
    """What the device took for it, where known."""
    host_s: float | None
    """The host's, where ``time_s`` is the device's."""
    where: str | None
    """The line that most samples show."""
    reason: str | None
    """Why ``time_s`` is None."""
    few: FewSteps | None


class WaitedFor(JsonForm):
    """Whom the ranks wait for."""

    rank: int | None
    """None if not one is shown to be."""
    ranks: list[int]
    hosts: list[str]
    """Whose ranks these are."""
    most_causing: int
    """Rank that causes most waiting."""
    caused_share: float
    """Its share of all waiting."""
    last_in: int
    """Steps in which it is last."""
    more_steps: int | None
    """That would show it; None if it is shown, or steps do not help."""
    others_wait_s: Interval
    """Of a step, on average."""
    part: str | None
    """That takes them longer."""
    part_s: float | None
    """By how many seconds."""
    part_share: float | None
    where: str | None

    @property
    def title(self) -> str:
        """Who it is: ``rank 2``, ``host n3 (all 8 ranks)``, ``ranks 4 to 7``."""
        ranks = listed_ranks(self.ranks)
        if not self.hosts:
            return ranks
        count = f"all {len(self.ranks)} ranks" if len(self.ranks) > 1 else ranks
        return f"{'hosts' if len(self.hosts) > 1 else 'host'} {', '.join(self.hosts)} ({count})"


def listed_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in short, those that follow one another together: ``ranks 0 to 3, 6``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]  # noqa: PLR2004
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(texts)}"


class CollectiveCount(JsonForm):
    """That Python starts, per step of a rank."""

    region: str
    """The part of the step around it."""
    kind: str
    count: float
    bytes: float
    time_s: float


class JobPart(JsonForm):
    """Use of the job's time; they sum to it."""

    name: Literal[
        "start_up", "first_steps", "input", "steps", "evaluation", "checkpoint", "held_up", "restart", "end", "unknown"
    ]
    """`first_steps`: by how much these are longer than later ones; `held_up`: waiting for others' evaluations and
    checkpoints; `restart`: between attempts at one training."""
    time_s: float
    share: float
    count: int | None  # how often
    ranks_s: list[float]


class AttachedTraining(JsonForm):
    """Of a command."""

    program: str  # with its arguments
    ranks: int
    steps: int
    """On record, of one rank."""
    step_s: Interval[float | None]
    restarts: int
    shown: bool
    """Whether the parts are of it."""


class StepStalls(JsonForm):
    """Steps of three medians and more."""

    count: int
    steps: int
    shortest_s: float
    share: float  # of time
    lost_s: float
    every: float | None  # steps


class StepSpread(JsonForm):
    """Single steps, means over ranks."""

    median_s: float
    p90_s: float | None
    p99_s: float | None
    longest_s: float
    longest_step: int
    stalls: StepStalls | None


class TrainedAmount(JsonForm):
    """Samples or tokens, of all ranks."""

    per_s: Interval[float | None]
    per_step: float | None
    ranks_per_s: list[float]
    reason: str | None
    """Why it is null."""


class Throughput(JsonForm):
    """Of loaders' batches, or what goes forward."""

    samples: TrainedAmount
    tokens: TrainedAmount
    padding: float | None
    """Share of tokens."""
    same_batches: list[list[int]]
    """Ranks that read the same batches, which count once."""


class RankMemory(JsonForm):
    """Memory of one rank, in bytes."""

    rank: int
    resident_peak: int | None
    growth_per_h: Interval[float | None]  # of what is resident, behind the first steps
    grows: bool  # steadily
    available: int | None  # least that the host had left
    swapped: int | None
    faults: int | None  # waits for pages from disk
    device_allocated: int | None
    device_reserved: int | None
    device_whole: int | None


class GpuUse(JsonForm):
    """While steps ran."""

    host: str
    index: int  # as nvidia-smi prints it
    name: str
    ranks: list[int]  # whose processes were on it; empty if the driver does not say
    looks: int
    busy_share: float | None  # of time, with a kernel at work
    power_w: float | None
    power_limit_w: float | None
    clock_hz: float | None
    highest_clock_hz: float | None
    throttled_share: float | None  # of looks in which something held its clocks back
    throttled_by: dict[str, float]  # likewise, by power, heat or hardware
    memory_used: int | None
    memory_of_run: int | None  # of the run's processes, by the driver
    memory_whole: int | None
    other_processes: list[str]  # name and number of those that the run did not start
    reason: str | None  # why some is null


class RankArithmetic(JsonForm):
    """Of one rank."""

    flop_per_s: Interval[float | None]
    precision: str | None  # of its products
    peak_flop_per_s: Interval[float | None]  # of its device or threads
    peak_source: Literal["measured", "data sheet"] | None
    mfu: Interval[float | None]
    reason: str | None  # why mfu is null


class StepWindow(JsonForm):
    """Means over ranks."""

    first_step: int
    last_step: int
    steps: int
    end_s: float
    """From the command's start."""
    mean_s: Interval[float | None]
    median_s: float
    p90_s: float | None
    longest_s: float
    longest_step: int
    ranks_s: list[float]
    parts_s: dict[str, float]


class DeviceTime(JsonForm):
    """From last event to last event."""

    host_step_s: float
    worked: float  # least share of the step
    waited: float  # least share in which the device had done all it was given
    parted: int  # steps timed in parts
    events_s: float  # what events cost the host in one of these
    event_s: float | None  # what one cost at start-up


class StepHistogram(JsonForm):
    """Steps by length."""

    bounds_s: list[float]
    counts: list[list[int]]
    """Of each rank."""
    sums_s: list[float]


class AttachedFinding(JsonForm):
    """What takes time, or limits what is known."""

    kind: Literal[
        "failed",
        "separate_models",
        "diverged_weights",
        "same_batches",
        "trainings",
        "incomplete_record",
        "straggler",
        "host_limit",
        "waiting",
        "input",
        "communication",
        "pipeline",
        "gaps",
        "stalls",
        "garbage_collection",
        "memory_growth",
        "page_faults",
        "throttling",
        "shared_gpu",
        "evaluation_on_few_ranks",
        "evaluation",
        "checkpoint",
        "first_steps",
        "start_up",
        "restart",
        "end",
        "micro_steps",
        "update_not_seen",
        "uncompiled",
        "recompilations",
        "optimizer_rounds",
        "skipped_updates",
        "loader_elsewhere",
        "loader_starts",
        "no_grad",
        "ablation",
        "fault",
    ]
    sentence: str
    lost_s: float | None
    """Of the whole job, mean over ranks."""


class ImportedFigures(JsonForm):
    """A file of another program."""

    path: str
    importer: str
    sha256: str
    figures: dict[str, str]
    """What each is made of."""
    values: dict[str, float]  # means over entries
    unknown: dict[str, str]
    """Why."""


class AttachedRun(JsonForm):
    """One run of a user's own script."""

    schema_: int = SCHEMA
    imported: list[ImportedFigures]
    """Files that all is made of."""
    command: list[str]
    exit_code: int | None  # as a shell shows it
    started_at: str
    """UTC, ISO 8601; empty if unknown."""
    wall_s: float | None
    back_end: str | None
    """What joined the processes, as `torch.distributed/gloo`."""
    world: int
    """Processes that train together; 0 where none was attached, or if unknown."""
    attempts: int  # groups of processes that trained together; the parts are of the longest
    trainings: list[AttachedTraining]  # of a command that trained several times; one started anew counts once
    ranks: list[AttachedRank]
    hosts: list[AttachedHost]
    steps: int
    """That the parts are means of."""
    left_out: int  # unsteady first steps, those with or behind an evaluation or a checkpoint, and of other kinds
    left_out_for: dict[str, int]
    micro_steps: int | None
    """Backward passes of such a step; None if that changes."""
    level: float  # of all intervals
    step_s: Interval[float | None]
    device: DeviceTime | None
    """Whose clock counts."""
    median_step_s: Interval[float | None]  # shown where the interval of ``step_s`` is wider than itself
    spread: StepSpread | None
    throughput: Throughput | None
    memory: list[RankMemory]
    gpus: list[GpuUse]
    gpus_reason: str | None  # why there are none
    windows: list[StepWindow]
    histogram: StepHistogram | None
    flops: float | None
    """Of one rank in a step, forward and backward."""
    flops_by: Literal["counted", "6 N"] | None  # with --flops; or for each token, N parameters multiply
    arithmetic: RankArithmetic | None
    parts: list[StepPart]
    waited_for: WaitedFor | None
    collectives: list[CollectiveCount]
    clock_uncertainty_s: float | None
    job: list[JobPart]
    findings: list[AttachedFinding]
    not_attached: str | None
    """Why nothing is known."""
    notes: list[str]  # what limits these numbers
    noise: dict[str, float | None]
    problems: list[str]  # records that were set aside, in sentences

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        data = self.model_dump(mode="json")
        return {"schema": data.pop("schema_"), **data}
