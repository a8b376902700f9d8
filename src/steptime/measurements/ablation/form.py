"""The breakdown of a trial's step in a report."""

from typing import Literal

from pydantic import Field

from steptime.measurements.json_form import Interval, JsonForm


class Phase(JsonForm):
    """Seconds of a step; a single launch may lack bounds."""

    value_s: float
    low_s: float | None
    high_s: float | None
    how: Literal["direct", "derived"]
    """`direct`: the framework marked it, or it cannot be; `derived`: a difference of runs without it."""


class Account(JsonForm):
    """A part of a step by the framework itself, with the ablation's account of it."""

    source: str
    """The framework's log or timers, or `marks`."""
    phase: str
    """Or several, joined by ` + `."""
    native_s: Interval
    by_ablation_s: Interval | None
    difference_s: Interval | None
    """Paired by blocks."""
    agrees: bool | None
    """True if the difference's whole interval is within 2 % of the step, False if all of it is beyond."""


class WorkerPhases(JsonForm):
    """One worker's computation."""

    rank: int
    host: str
    compute_s: Interval
    """Per step, without waiting."""
    heat_s: list[float]
    """Of single steps of the first launch, the same for all workers."""


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
    """comm_hidden / communication."""
    communication_s: Phase
    """Covered or not."""
    comm_hidden_s: Phase


class PopEfficiencies(JsonForm):
    """POP efficiencies of one step, by the formulas of docs/breakdown.md."""

    parallel: Interval
    load_balance: Interval
    communication: Interval
    serialisation: Interval
    """Falls with pauses of one worker that all wait for."""
    transfer: Interval
    without_input_wait: Interval | None
    """1 minus the share of input wait, which the others count as useful."""
    useful_s: Interval
    """In which the mean worker neither communicates nor waits for workers."""
    computation: Interval | None = None
    """Useful seconds for a sample at the reference divided by those here."""
    global_efficiency: Interval | None = None
    reference: str | None = None
    """A trial of fewer workers."""
    reference_workers: int | None = None
    reference_strategy: str | None = None
    scaling: Literal["weak", "strong"] | None = None
    """Whether the reference has the same batch per worker, or the same global batch."""


class StepBreakdown(JsonForm):
    """Where the time of a step goes."""

    launches: int
    step_s: Phase
    """Of the ablation runs; the phases sum to it."""
    phases: dict[str, Phase | None]
    closure_error: float
    """|sum of phases without the residual - step| / step."""
    native: dict[str, Phase]
    accounts: list[Account] = Field(default_factory=list)
    overlap: Overlap | None
    imbalance: Imbalance | None
    input_s: Phase | None
    """A batch by the loader alone."""
    instrumentation: Interval | None
    """Step with the framework's marks over the step without, paired by blocks, minus 1."""
    against_timing: Interval | None
    """Step of the ablation runs over that of the timing runs, minus 1."""
    clock_uncertainty_s: float
    """Arrivals closer than this were not distinguished."""
    pop: PopEfficiencies | None = None
    pop_refused: str | None = None
    flags: list[str] = Field(default_factory=list)
    """What else the machine did, in how many launches."""
