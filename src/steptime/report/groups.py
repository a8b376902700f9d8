"""The ranking of trials, group by group, and the sentence that sums up each group."""

from collections.abc import Sequence
from dataclasses import dataclass

from steptime.analysis.summary_form import RankedTrial, Summary, TrialSummary
from steptime.document.number_format import (
    INCONCLUSIVE,
    ONE_LAUNCH,
    Shown,
    baseline,
    count,
    listed,
    number,
    quantiles,
    ratio,
    samples_per_s,
    share,
    step_time,
    throughput,
)
from steptime.report.trial_names import Names, short_of_implementer
from steptime.units import is_undecided

_ENOUGH = 3
"""Launches that show how launches differ."""
_BEYOND = 1.1
"""A gain this many times what the further workers are is none of theirs."""
_SLOWER = "slower"
_BETTER = "more launches, or a quieter machine, would tell"


@dataclass(frozen=True)
class RankedRow:
    """One line of a ranking: a place, its trial, and what is shown of it."""

    place: RankedTrial
    trial: TrialSummary
    name: str

    @property
    def label(self) -> str:
        """Its name where there is little width: of who implements its strategy the first word."""
        return short_of_implementer(self.name, self.trial)

    @property
    def rate(self) -> Shown:
        """Samples per second."""
        return throughput(self.trial.throughput_samples_per_s)

    @property
    def computes(self) -> str:
        """What it computes in a second, as a clause."""
        return f"{self.name} computes {samples_per_s(self.trial.throughput_samples_per_s)}"

    @property
    def has_known_scaling(self) -> bool:
        """Whether what its workers bring over fewer of them is known, if only that it may be nothing."""
        return self.trial.scaling is not None and ratio(self.trial.scaling.speedup).text != INCONCLUSIVE

    @property
    def scaling(self) -> str:
        """What its workers bring over fewer of them, or why that cannot be told and what would; empty without fewer."""
        if self.trial.scaling is None:
            return ""
        speedup, fewer = self.trial.scaling.speedup, count(self.trial.scaling.workers, "worker")
        many = f"{self.name} with {count(self.trial.workers, 'worker')}"
        shown = ratio(speedup)
        if speedup.low is None or (shown.text == INCONCLUSIVE and speedup.least == speedup.most):
            return (
                f"{many} computed {number(speedup.value)}x the samples/s of {fewer}, in one launch each, which may be "
                f"chance: {_ENOUGH} launches of each would tell"
            )
        if shown.text == INCONCLUSIVE:
            return (
                f"whether {many} is faster than with {fewer} cannot be told: its launches computed "
                f"{number(speedup.least or 0.0)} to {number(speedup.most or 0.0)} times the samples/s; {_BETTER}"
            )
        line = f"{many} computes {shown.line} the samples/s of {fewer}"
        if speedup.low <= 1.0 <= (speedup.high or 0.0):
            return f"{line}, which may be no gain: {_BETTER}"
        if (speedup.value or 0.0) * self.trial.scaling.workers > _BEYOND * self.trial.workers:
            return f"{line}, more than further workers can bring: what slowed {fewer}?"
        return line if speedup.low > 1.0 else f"{line}: fewer are faster"

    @property
    def time(self) -> Shown:
        """The step time."""
        return step_time(self.trial.step_time_s)

    @property
    def quantiles(self) -> Shown:
        """What half, 90 % and 99 % of the steps take at most."""
        return quantiles(self.trial.step_time_s)

    @property
    def ratio(self) -> Shown:
        """The step time divided by the best's; ``best`` for the best itself."""
        if self.place.rank == 1:
            return Shown("best", "")
        shown = slowdown(self.place)
        return Shown(shown.text, ONE_LAUNCH) if self.alone else shown

    @property
    def alone(self) -> bool:
        """Whether one launch of it is all there is, and no other trial shows how launches spread."""
        return self.place.ratio_to_best.low is None

    def takes(self, best: str = "") -> str:
        """``takes 1.24x (1.20 to 1.29) the time of`` the best, or that their ratio is inconclusive or not known."""
        shown = self.ratio
        if shown.text == _SLOWER:
            return f"is slower{f' than {best}' if best else ''} ({shown.interval})"
        if shown.text == INCONCLUSIVE:
            return f"has an inconclusive ratio{f' to {best}' if best else ''} ({shown.interval})"
        return f"takes {shown.line} the time{f' of {best}' if best else ''}"

    @property
    def slowest(self) -> str:
        """``tensorflow single, the slowest, 3.10x (3.01 to 3.19)``."""
        shown = slowdown(self.place)
        return f"{self.name}, the slowest" + (f" ({shown.interval})" if shown.text == _SLOWER else f", {shown.line}")

    @property
    def efficiency(self) -> Shown:
        """Throughput per worker relative to the baseline's."""
        return share(self.trial)


def slowdown(place: RankedTrial) -> Shown:
    """Return the step time divided by the best's; ``slower`` where that much is known, and by how much is open."""
    shown = ratio(place.ratio_to_best)
    return Shown(_SLOWER, shown.interval) if shown.text == INCONCLUSIVE and not place.tied_with_best else shown


@dataclass(frozen=True)
class RankedGroup:
    """Trials that may be compared, best first."""

    title: str
    rows: list[RankedRow]

    @property
    def tied(self) -> list[RankedRow]:
        """The best, and those that cannot be distinguished from it."""
        return [row for row in self.rows if row.place.rank == 1 or row.place.tied_with_best]

    @property
    def in_order(self) -> bool:
        """Whether its trials have an order and no ranks: one launch each cannot show how launches differ."""
        return len(self.rows) > 1 and all(row.alone for row in self.rows if row.place.rank > 1)

    @property
    def flags(self) -> list[str]:
        """The flags of all its trials, each once."""
        return list(dict.fromkeys(flag for row in self.rows for flag in row.trial.flags))

    @property
    def baseline(self) -> str:
        """What all its efficiencies are relative to; empty when that differs or when there are none."""
        found = {baseline(row.trial) for row in self.rows} - {""}
        return found.pop() if len(found) == 1 else ""

    @property
    def has_efficiency(self) -> bool:
        """Whether any of its trials is compared with another number of workers."""
        return any(baseline(row.trial) for row in self.rows)

    def rank(self, row: RankedRow) -> str:
        """The rank of a row, with an equals sign where nothing was shown to be faster; empty with one launch each.

        Those that share the first rank have its number; one that a slower row parts from them keeps its own.
        """
        if self.in_order:
            return ""
        if row not in self.tied or len(self.tied) == 1:
            return str(row.place.rank)
        above = self.rows[: self.rows.index(row)]
        return "1=" if all(each in self.tied for each in above) else f"{row.place.rank}="

    def efficiency(self, row: RankedRow) -> Shown:
        """The efficiency of a row, with its baseline unless that is the whole group's."""
        own = "" if self.baseline else baseline(row.trial)
        return Shown(row.efficiency.text, f"{row.efficiency.interval}, {own}" if own else row.efficiency.interval)


def scaling_of(groups: Sequence[RankedGroup]) -> str:
    """Return what the most workers bring the best trial that is compared with fewer; empty without any.

    Where trials are ranked, that is empty too unless it is known: the ranking is the answer.
    """
    rows = [row for group in reversed(groups) for row in group.rows]
    most = max((row.trial.workers for row in rows), default=0)
    best = next((row for row in rows if row.trial.workers == most and row.scaling), None)
    if best is None or (not best.has_known_scaling and any(len(group.rows) > 1 for group in groups)):
        return ""
    return best.scaling


def ranked_groups(summary: Summary, names: Names) -> list[RankedGroup]:
    """Return the groups in the order of the summary."""
    trials = {trial.id: trial for trial in summary.trials}
    groups: dict[str, list[RankedRow]] = {}
    for place in summary.ranking:
        trial = trials[place.trial]
        groups.setdefault(place.group, []).append(RankedRow(place, trial, names.short(trial)))
    return [RankedGroup(title, sorted(rows, key=lambda row: row.place.rank)) for title, rows in groups.items()]


# Naming more would hide the sentence; the table marks all of them.
_MOST_NAMES = 4
_RESOLUTION = "3 %"
"""The half-width that ``Place.launches_to_settle`` aims at."""
_MOST_LAUNCHES = 20
"""More of each trial than so many are not asked for."""
_NEAR = 1.1
"""A ratio that is at most so large is not worth many launches."""


MOST_ANSWERS = 4
"""Groups whose verdicts a page begins with; of more, it begins with a sentence for each workload."""


def verdict(group: RankedGroup) -> str:
    """Return who is fastest and by how much, or who cannot be distinguished and what would settle it."""
    if len(group.rows) == 1:
        return f"{group.rows[0].computes}; nothing else was measured to compare it with."
    if group.in_order:
        first, second, *_ = group.rows
        return (
            f"In this order, with one launch each, which cannot show how launches differ: {first.name}, then "
            f"{second.name} ({second.ratio.text} the time); 3 launches of each would rank them."
        )
    own = [row for row in group.rows if not row.trial.implementation]
    foreign = [row for row in group.rows if row.trial.implementation]
    if not foreign or not own:
        return _verdict(group.rows, group.tied)
    if foreign[0].place.rank == 1:
        return _behind(foreign[0], own)
    sentence = _verdict(own, [row for row in group.tied if row in own]) if len(own) > 1 else f"{own[0].name} is first."
    slower = [f"{row.name} {row.takes()}" for row in foreign[:_MOST_NAMES]]
    return f"{sentence} No claim about the framework: {listed(slower)}."


def clause(group: RankedGroup) -> str:
    """Return who is fastest and by how much over the next, or who cannot be distinguished, as a part of a sentence."""
    best, *_ = group.rows
    others = [row for row in group.rows if row not in group.tied]
    following = f"; the next, {others[0].name}, {others[0].takes()}" if others else ""
    if len(group.rows) == 1:
        return best.computes
    if group.in_order:
        return f"in this order, with one launch each: {listed([row.name for row in group.rows[:_MOST_NAMES]])}"
    if len(group.tied) > 1:
        return f"{_who(group.tied)} cannot be distinguished{following}"
    return f"{best.name} is fastest{following}"


def _behind(best: RankedRow, own: list[RankedRow]) -> str:
    """Say that a strategy is fastest that its framework does not implement, and who is first of the others."""
    first, *rest = own
    sentence = (
        f"{best.name} is fastest, but not implemented by {best.trial.framework} itself; the fastest native one, "
        f"{first.name}, {first.takes()}"
    )
    if rest:
        sentence += f"; {rest[-1].slowest}"
    return f"{sentence}."


def _verdict(rows: list[RankedRow], tied: list[RankedRow]) -> str:
    others = [row for row in rows if row not in tied]
    if len(tied) == 1:
        return _fastest(tied[0], others)
    sentence = _tie(tied)
    if others:
        sentence += f" The next, {others[0].name}, {others[0].takes(tied[0].name)}."
    return sentence


def _fastest(best: RankedRow, others: list[RankedRow]) -> str:
    nearest, *rest = others
    sentence = f"{best.name} is fastest: {nearest.name} {nearest.takes()}"
    if rest:
        sentence += f"; {rest[-1].slowest}"
    return f"{sentence}."


def _tie(tied: list[RankedRow]) -> str:
    sentence = f"{_who(tied)} cannot be distinguished at this budget"
    if len(tied) == 2:  # noqa: PLR2004 - a pair has one ratio, which shows how far apart they may be
        sentence += f": the second {tied[1].takes('the first')}"
    needed = [row.place.launches_to_settle for row in tied[1:] if row.place.launches_to_settle is not None]
    if needed and max(needed) > _MOST_LAUNCHES:
        return f"{sentence}{_not_settled_soon(tied)}."
    if needed and max(needed) > 0:
        return f"{sentence}; about {count(max(needed), 'more launch')} of each would settle {_RESOLUTION}."
    if needed:
        return f"{sentence}; what separates them is known to within {_RESOLUTION} already."
    return f"{sentence}."


def _not_settled_soon(tied: list[RankedRow]) -> str:
    """Return how far ties may lie from the first, where settling them takes too many launches; empty if unknown."""
    bounds = [row.place.ratio_to_best for row in tied[1:]]
    if any(is_undecided(each.low, each.high) for each in bounds):
        fewest = min(row.trial.launches for row in tied)
        if fewest < _ENOUGH:
            return f"; {count(fewest, 'launch')} of one cannot show how its launches differ: make {_ENOUGH} of each"
        return "; launches vary too much for a ratio: rerun on a quieter machine"
    most = max((max(each.high, 1.0 / each.low) for each in bounds if each.high and each.low), default=None)
    if most is None:
        return ""
    they = "they differ" if len(bounds) == 1 else "the others differ from the first"
    if most <= _NEAR:
        return f"; not worth settling: {they} by at most {number(100.0 * (most - 1.0))} %"
    return f"; {they} by at most {number(most)}x, and launches vary too much for more: rerun on a quieter machine"


def _who(tied: list[RankedRow]) -> str:
    names = [row.name for row in tied]
    return listed(names) if len(names) <= _MOST_NAMES else f"{names[0]} and {len(names) - 1} others, marked =,"
