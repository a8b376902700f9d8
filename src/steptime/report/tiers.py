"""The tiers of a study in words: the order of the race in each, and what ``tuned`` changed and gained."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steptime.measurements.summary_form import RankedTrial, Summary, TrialSummary, TunedTrial
from steptime.report.number_format import UNKNOWN, Shown, ratio
from steptime.report.section import Cell, Column, Pairs, Part, Section, SectionTable, Sentences, TableRow
from steptime.report.trial_names import Names

EXPLANATION = (
    "documented: what the framework's own guide and official example do. tuned: the best that an expert gets without "
    "changing what is computed. Both trained the same model on the same batches; options that the study names are as "
    "it names them in both."
)


@dataclass(frozen=True)
class TunedRow:
    """What ``tuned`` changed for one trial."""

    name: str
    speedup: Shown
    changed: str
    """Every option that ``tuned`` changes, by name and value."""
    tied: bool
    """Whether nothing shows that ``tuned`` is faster or slower."""

    @property
    def line(self) -> str:
        """One line for a terminal."""
        if self.speedup.text == UNKNOWN:
            return f"{self.name}: not measured in both tiers; tuned has {self.changed}"
        doubt = ", which shows no difference" if self.tied else ""
        return f"{self.name}: {self.speedup.line} as fast as documented{doubt}, by {self.changed}"


@dataclass(frozen=True)
class TierGroup:
    """The tiers of one group of trials that may be compared."""

    title: str
    orders: list[tuple[str, str]]
    """Each tier with its race, fastest first; empty where only one tier was raced."""
    rows: list[TunedRow]
    unchanged: list[str]
    """The trials for which ``tuned`` changes nothing."""


def tier_section(summary: Summary, names: Names) -> Section | None:
    """Return the order of the race in each tier, and what ``tuned`` changed; None if no trial is tuned."""
    groups = tier_groups(summary, names)
    if not groups:
        return None
    return Section("Documented and tuned", [_group_section(group) for group in groups], EXPLANATION, id="tiers")


def _group_section(group: TierGroup) -> Section:
    parts: list[Part] = [Pairs(group.orders)] if group.orders else []
    if group.rows:
        rows = [
            TableRow(
                row.name,
                [Cell(*row.speedup, note="shows no difference" if row.tied else ""), Cell(row.changed)],
                sentence=row.line,
            )
            for row in group.rows
        ]
        columns = [Column("tuned is so many times as fast"), Column("what tuned changed", "prose")]
        parts.append(SectionTable(columns, rows, label=f"What tuned changed: {group.title}"))
    if group.unchanged:
        parts.append(Sentences([f"Tuned changes nothing for {', '.join(group.unchanged)}."]))
    return Section(group.title, parts)


def tier_groups(summary: Summary, names: Names) -> list[TierGroup]:
    """Return the groups in which any trial is tuned, or stands in the tier ``tuned``, in the order of the summary."""
    trials = {trial.id: trial for trial in summary.trials}
    groups = dict.fromkeys(trial.group for trial in summary.trials if "tuned" in trial.tiers)
    found = []
    for title in groups:
        members = [trial for trial in summary.trials if trial.group == title]
        places = {
            tier: [place for place in ranking if place.group == title] for tier, ranking in summary.tier_ranking.items()
        }
        found.append(
            TierGroup(
                title=title,
                orders=[(tier, _order(own, trials, names)) for tier, own in places.items() if own],
                rows=[_row(each, trials, names) for each in summary.tuned if each.group == title],
                unchanged=[names.without_tier(each) for each in members if _unchanged(each)],
            )
        )
    return found


def _unchanged(trial: TrialSummary) -> bool:
    return trial.tuning == "documented" and "tuned" in trial.tiers


def _order(places: Sequence[RankedTrial], trials: dict[str, TrialSummary], names: Names) -> str:
    return ", ".join(_place(place, names.without_tier(trials[place.trial])) for place in places)


def _place(place: RankedTrial, name: str) -> str:
    if place.rank == 1:
        return f"1 {name}"
    return f"{place.rank}{'=' if place.tied_with_best else ''} {name} {ratio(place.ratio_to_best).text}"


def _row(tuned: TunedTrial, trials: dict[str, TrialSummary], names: Names) -> TunedRow:
    changed = ", ".join(
        f"{name}={_value(change.tuned)} (documented {_value(change.documented)})"
        for name, change in tuned.changed.items()
    )
    found = tuned.speedup
    speedup = ratio(found) if found else Shown(UNKNOWN, "")
    tied = found is not None and found.low is not None and found.high is not None and found.low <= 1.0 <= found.high
    return TunedRow(names.without_tier(trials[tuned.trial]), speedup, changed, tied)


def _value(value: Any) -> str:  # noqa: ANN401 - any value of an option
    """As a study file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
