"""The breakdown of a trial's step in a report."""

from typing import Literal

from pydantic import Field

from steptime.measurements.json_form import Interval, JsonForm


class Phase(JsonForm):
    """Seconds of a step; bounds are None if a single launch cannot show them."""

    value_s: float
    low_s: float | None
    high_s: float | None
    how: Literal["direct", "derived"]
    """`direct`: the framework marked it, or it cannot be; `derived`: a difference of runs without it."""


class Account(JsonForm):
    """What a part of a step takes by the framework itself, with the ablation's account of the same part."""

    source: str
    """The framework's log or timers, or `marks`."""
    phase: str
    """Or several, joined by ` + `."""
    native_s: Interval
    by_ablation_s: Interval | None
    """None if the ablation cannot tell."""
    difference_s: Interval | None
    """`native_s` minus `by_ablation_s`, paired by blocks."""
    agrees: bool | None
    """True if the whole interval of the difference is within 2 % of the step, False if all of it is beyond; None if
    neither is shown, for example without an interval or an ablation."""


class WorkerPhases(JsonForm):
    """One worker's computation."""

    rank: int
    host: str
    compute_s: Interval
    """Seconds per step, without any waiting."""
    heat_s: list[float]
    """Seconds of computation of each of some steps of the first launch, of the same steps for all workers."""


class Imbalance(JsonForm):
    """Load imbalance over workers; shares are of the mean computation."""

    factor: float
    factor_low: float | None
    factor_high: float | None
    percent: float
    """(factor - 1) x 100."""
    persistent: float
    transient: float
    blamed_worker: int | None
    workers: list[WorkerPhases]


class Overlap(JsonForm):
    """How much communication computation covers."""

    ratio: float | None
    """comm_hidden / communication; None if nothing is communicated."""
    communication_s: Phase
    """In all, covered or not."""
    comm_hidden_s: Phase


class PopEfficiencies(JsonForm):
    """The factors by which computing centres judge a parallel program, of one step (``measurements/ablation/pop.py``).

    parallel = load_balance x communication, communication = serialisation x transfer, global_efficiency =
    parallel x computation.
    """

    parallel: Interval
    """What the mean worker does not spend on communication and on waiting for workers, as a share of the step."""
    load_balance: Interval
    """The mean computation divided by that of the worker that is slowest on average."""
    communication: Interval
    serialisation: Interval
    """What is lost beside transfers and lasting imbalance, such as pauses of one worker that all wait for."""
    transfer: Interval
    """What exposed communication leaves of the step."""
    without_input_wait: Interval | None
    """1 minus the share of the step that waits for input, which the others count as useful; None if it is unknown."""
    useful_s: Interval
    """Seconds of a step that the mean worker neither communicates nor waits for workers."""
    computation: Interval | None = None
    """Useful seconds for a sample at the reference divided by those here; None without a trial of fewer workers."""
    global_efficiency: Interval | None = None
    reference: str | None = None
    """The id of that trial."""
    reference_workers: int | None = None
    reference_strategy: str | None = None
    scaling: Literal["weak", "strong"] | None = None
    """Whether the reference has the same batch per worker, or the same global batch."""


class StepBreakdown(JsonForm):
    """Where the time of a step goes."""

    launches: int
    step_s: Phase
    """The mean step of the ablation runs, which the phases sum to."""
    phases: dict[str, Phase | None]
    """By name, in the order of ``steptime.phases``; None if nothing here can tell, which is not 0."""
    closure_error: float
    """|sum of phases without the residual - step| / step."""
    native: dict[str, Phase]
    """Phases as the framework marks them, for a cross-check."""
    accounts: list[Account] = Field(default_factory=list)
    """What the framework's timers and marks say, each with the ablation's account."""
    overlap: Overlap | None
    imbalance: Imbalance | None
    input_s: Phase | None
    """The loader alone, per batch: what it could give if nothing else ran."""
    instrumentation: Interval | None
    """Step with the framework's marks divided by the step without, paired by blocks, minus 1."""
    against_timing: Interval | None
    """Step of the ablation runs divided by that of the timing runs, minus 1."""
    clock_uncertainty_s: float
    """Arrivals of workers closer than this were not distinguished."""
    pop: PopEfficiencies | None = None
    """None if the step has none (`pop_refused`)."""
    pop_refused: str | None = None
    """Why."""
    flags: list[str] = Field(default_factory=list)
    """What else the machine did meanwhile, with how many of the launches it touched."""
