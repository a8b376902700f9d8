"""The breakdown of a trial's step in a report.

Where the difference between two trials' steps comes from, phase by phase.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from steptime.phases import REST
from steptime.results.json_form import Interval, JsonForm


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
    undecided: list[str] = Field(default_factory=list)
    """Phases that stages contradict."""
    more_launches: int | None = None
    """To decide them."""
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

    def step_over(
        self, mean_s: float | None, low_s: float | None, high_s: float | None
    ) -> Interval[float, float | None] | None:
        """Return its step over that of timed launches, between what the ends of both intervals allow, if it is known.

        It is None without timed launches.
        """
        if self.against_timing is None or not mean_s:
            return None
        low = self.step_s.low_s / high_s if self.step_s.low_s is not None and high_s else None
        high = self.step_s.high_s / low_s if self.step_s.high_s is not None and low_s else None
        return Interval(self.step_s.value_s / mean_s, low, high)

    def shown_closure_error(self) -> float:
        """Return the part of ``closure_error`` that the intervals of step and phases do not leave open.

        The width of a sum follows from the widths of its terms as in ``gap``. Phases that are differences of one
        another's runs err against each other, so that rather too little is shown than too much.
        """
        terms = [self.step_s, *(phase for name, phase in self.phases.items() if phase and name != REST)]
        bounds = ((term.low_s, term.high_s) for term in terms)
        halves = ((high - low) / 2 for low, high in bounds if low is not None and high is not None)
        return max(0.0, self.closure_error - math.hypot(*halves) / self.step_s.value_s)


_ROUNDING = 1e-12
"""Of a step: less is what floating point leaves of a sum."""


class Difference(JsonForm):
    """Seconds that the second trial takes longer; negative where it is quicker, bounds None if either has none."""

    value_s: float
    low_s: float | None
    high_s: float | None


class Gap(JsonForm):
    """The way from one trial's step to another's; the parts sum to ``step_s``."""

    first: str
    second: str
    step_s: Difference
    parts: dict[str, Difference]
    """By phase; ``residual`` holds the rest and what is folded."""
    folded: list[str]
    """Phases that only one of both trials knows."""


def gap(first: str, one: StepBreakdown, second: str, other: StepBreakdown) -> Gap:
    """Return what each phase adds to the step of ``second`` beyond that of ``first``.

    The bounds of a difference are those of two independent estimates from their own intervals, by the method of
    variance estimates recovery (Zou and Donner, Stat. Med. 27 (2008) 1693): low = a - b - sqrt((a - a_low)^2 +
    (b_high - b)^2). Phases of one trial are not independent of each other, so where several are folded into the
    rest, their half-widths are added up, which may be wider than need be and is never narrower.

    Args:
        first: id of the trial that is the starting point.
        one: its breakdown.
        second: id of the other trial.
        other: its breakdown.
    """
    folded = [
        name for name in one.phases if name != REST and (one.phases[name] is None) != (other.phases[name] is None)
    ]
    parts = {
        name: _difference(_centred(before), _centred(after))
        for name, before in one.phases.items()
        if name != REST and before is not None and (after := other.phases[name]) is not None
    }
    whole = _difference(_centred(one.step_s), _centred(other.step_s))
    rest = _difference(_rest(one, folded), _rest(other, folded))
    # What is left, so that the parts sum to the difference of the steps to the last digit.
    left = whole.value_s - math.fsum(part.value_s for part in parts.values())
    parts[REST] = _moved(rest, left - rest.value_s if abs(left) > _ROUNDING * one.step_s.value_s else -rest.value_s)
    return Gap(first=first, second=second, step_s=whole, parts=parts, folded=folded)


def against_first(trials: Iterable[tuple[str, str, StepBreakdown | None]]) -> list[Gap]:
    """Return the gap of every trial to the first of its group; ``trials`` are ordered (group, id, breakdown)."""
    firsts: dict[str, tuple[str, StepBreakdown]] = {}
    found = []
    for group, trial, own in trials:
        if own is not None:
            first = firsts.setdefault(group, (trial, own))
            if first[0] != trial:
                found.append(gap(*first, trial, own))
    return found


_Around = tuple[float, float | None, float | None]
"""A value, and how far its bounds are below and above it."""


def _centred(phase: Phase) -> _Around:
    if phase.low_s is None or phase.high_s is None:
        return phase.value_s, None, None
    return phase.value_s, phase.value_s - phase.low_s, phase.high_s - phase.value_s


def _rest(breakdown: StepBreakdown, folded: Sequence[str]) -> _Around:
    phases = [phase for name in (REST, *folded) if (phase := breakdown.phases.get(name)) is not None]
    around = [_centred(phase) for phase in phases]
    value = math.fsum(value for value, _, _ in around)
    below, above = [each[1] for each in around], [each[2] for each in around]
    if not around or None in below or None in above:
        return value, None, None
    return value, math.fsum(each for each in below if each), math.fsum(each for each in above if each)


def _difference(one: _Around, other: _Around) -> Difference:
    (before, before_below, before_above), (after, after_below, after_above) = one, other
    value = after - before
    if before_below is None or before_above is None or after_below is None or after_above is None:
        return Difference(value_s=value, low_s=None, high_s=None)
    low = value - math.hypot(after_below, before_above)
    return Difference(value_s=value, low_s=low, high_s=value + math.hypot(after_above, before_below))


def _moved(difference: Difference, by_s: float) -> Difference:
    low, high = difference.low_s, difference.high_s
    return Difference(
        value_s=difference.value_s + by_s,
        low_s=None if low is None else low + by_s,
        high_s=None if high is None else high + by_s,
    )
