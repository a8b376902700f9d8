"""Groups whose steps were broken down: where the time of a step goes."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from steptime.analysis.ablation.form import Phase, StepBreakdown
from steptime.document.number_format import UNKNOWN, Shown, count, listed, number, percent, seconds, time_unit, times
from steptime.phases import PHASES
from steptime.report.groups import RankedGroup, RankedRow
from steptime.results.json_form import Interval

EXPLANATION = (
    "Phases sum to the mean step of ablation runs, which were made for this next to the runs that time the step. A "
    "phase is the difference of runs with and without one stage of the step. A star means no difference: "
    "the framework itself marked when the phase began and ended, or the phase cannot occur here. A dash means that "
    "a phase is not known, which is never 0. The rest is what the phases leave of the step, with every phase that has "
    "a dash. Closure is how far the sum of the phases without the rest is from the step, as a share of the step: above "
    "2 % the phases do not explain the step. Where marks and the ablation disagree, the account with which the phases "
    "sum to the step is taken; both are listed."
)
TITLES = {phase.name: phase.title for phase in PHASES}
"""The phases in their order, as a reader sees them."""
CLOSED = 0.02
"""A closure error above this means that the phases do not explain the step."""


@dataclass(frozen=True)
class PhaseCell:
    """One phase of one trial."""

    name: str
    title: str
    time: Shown
    share: Shown
    how: str
    """``direct`` or ``derived``; empty where the phase is not known."""

    @property
    def star(self) -> str:
        """``*`` behind what is known directly."""
        return "*" if self.how == "direct" else ""

    @property
    def is_none(self) -> bool:
        """Whether the phase is known to take no time."""
        return self.time.text == _NONE


@dataclass(frozen=True)
class BreakdownRow:
    """One trial's step."""

    row: RankedRow
    breakdown: StepBreakdown
    step: Shown
    cells: list[PhaseCell]

    @property
    def closure(self) -> str:
        """``0.720 %``."""
        return f"{number(100 * self.breakdown.closure_error)} %"

    @property
    def closed(self) -> bool:
        """Whether the phases explain the step."""
        return self.breakdown.closure_error <= CLOSED

    @property
    def imbalance(self) -> str:
        """Who computes longer than the others, in a sentence; empty for a single worker."""
        found = self.breakdown.imbalance
        if self.row.trial.workers == 1:
            return ""
        if found is None:
            return "load imbalance is not known"
        factor = times(found.factor, found.factor_low, found.factor_high).line
        lasting, passing = (f"{number(100 * part)} %" for part in (found.persistent, found.transient))
        parts = f"{lasting} always the same worker, {passing} now one, now another"
        return f"the slowest worker computes {factor} as long as the mean ({parts}); {self.blame}"

    @property
    def blame(self) -> str:
        """``worker 1 on host h1 is to blame``, or that no worker is."""
        found = self.breakdown.imbalance
        if found is None or found.blamed_worker is None:
            return "no one worker is to blame"
        worker = next(each for each in found.workers if each.rank == found.blamed_worker)
        return f"worker {worker.rank} on host {worker.host} is to blame"

    @property
    def overlap(self) -> str:
        """How much of the communication is covered, in a sentence; empty for a single worker."""
        found = self.breakdown.overlap
        if self.row.trial.workers == 1:
            return ""
        if found is None:
            return "how much communication is covered by computation is not known"
        whole = _phase(found.communication_s).line
        hidden = _phase(found.comm_hidden_s).line
        share = UNKNOWN if found.ratio is None else f"{number(100 * found.ratio)} %"
        return f"communication takes {whole} in all; computation covers {share} of it, {hidden}"

    @property
    def _over_timed(self) -> Interval[float, float | None] | None:
        timed = self.row.trial.step_time_s
        return self.breakdown.step_over(timed.mean, timed.low, timed.high)

    @property
    def gap(self) -> str:
        """How far its step is from that of the timed launches, in a clause; empty where their intervals meet."""
        ratio = self._over_timed
        apart = ratio and ratio.low is not None and ratio.high is not None and not ratio.low <= 1.0 <= ratio.high
        return f"{times(*astuple(ratio)).line} the step of the timed launches" if ratio and apart else ""

    @property
    def instrumentation(self) -> str:
        """What the breakdown costs, in a sentence."""
        ratio = self._over_timed
        rather = f"; their step is {times(*astuple(ratio)).line} that of the timed launches" if ratio else ""
        found = self.breakdown.instrumentation
        if found is None:
            return f"{count(self.breakdown.launches, 'launch')}, without marks of the framework{rather}"
        cost = percent(found.value, found.low, found.high).line
        return f"{count(self.breakdown.launches, 'launch')}; marking costs {cost} of a step{rather}"

    @property
    def undecided(self) -> str:
        """Which phases the launches contradict, and how many more would decide, in a sentence; empty where none."""
        broken_down = self.breakdown
        if not broken_down.undecided:
            return ""
        names = listed([TITLES[name] for name in broken_down.undecided])
        more = f"about {count(broken_down.more_launches or 1, 'launch')} of it more would tell"
        return f"{names} are undecided: the step of the breakdown was shorter with one stage more; {more}"

    @property
    def notes(self) -> list[str]:
        """The sentences above, those that have a statement."""
        return [line for line in (self.undecided, self.imbalance, self.overlap, self.instrumentation) if line]


@dataclass(frozen=True)
class BreakdownGroup:
    """A group with trials that were broken down, in the order of its ranking."""

    title: str
    rows: list[BreakdownRow]
    unit: str
    """Of all times in the cells."""

    @property
    def shown(self) -> list[str]:
        """The phases that any trial of the group has or may have."""
        return [name for index, name in enumerate(TITLES) if not all(row.cells[index].is_none for row in self.rows)]


def breakdown_groups(groups: Sequence[RankedGroup]) -> list[BreakdownGroup]:
    """Return the groups that hold a trial that was broken down, in their order."""
    found = []
    for group in groups:
        own = [(row, row.trial.breakdown) for row in group.rows if row.trial.breakdown]
        if own:
            unit = time_unit(min(breakdown.step_s.value_s for _, breakdown in own))
            rows = [
                BreakdownRow(row, breakdown, _phase(breakdown.step_s, unit), _cells(breakdown, unit))
                for row, breakdown in own
            ]
            found.append(BreakdownGroup(group.title, rows, unit[1]))
    return found


_NONE = "none"


def _cells(breakdown: StepBreakdown, unit: tuple[float, str]) -> list[PhaseCell]:
    step = breakdown.step_s.value_s
    return [_cell(name, title, breakdown.phases, step, unit) for name, title in TITLES.items()]


def _cell(
    name: str, title: str, phases: Mapping[str, Phase | None], step_s: float, unit: tuple[float, str]
) -> PhaseCell:
    phase = phases.get(name)
    if phase is None:
        return PhaseCell(name, title, Shown(UNKNOWN, ""), Shown(UNKNOWN, ""), "")
    bounds = (phase.value_s, phase.low_s, phase.high_s)
    if phase.how == "direct" and not any(bounds):
        return PhaseCell(name, title, Shown(_NONE, ""), Shown(_NONE, ""), phase.how)
    share = percent(*(None if each is None else each / step_s for each in bounds))
    return PhaseCell(name, title, _phase(phase, unit), share, phase.how)


def _phase(phase: Phase, unit: tuple[float, str] | None = None) -> Shown:
    return seconds(phase.value_s, phase.low_s, phase.high_s, unit)
