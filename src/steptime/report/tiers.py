"""The rankings within each tier, as a section."""

from collections.abc import Iterator, Sequence
from typing import Any

from steptime.analysis.summary_form import RankedTrial, Summary, TrialSummary, TunedTrial
from steptime.document.number_format import UNKNOWN, ratio
from steptime.document.section import Cell, Column, Pairs, Part, Section, SectionTable, Sentences, TableRow, cells
from steptime.report.groups import slowdown
from steptime.report.trial_names import Names

_OF_TIERS = (
    "documented: what the framework's own guide and official example do. tuned: the best that an expert gets without "
    "changing what is computed. Both trained the same model on the same batches; options that the study names are as "
    "it names them in both."
)


def tier_section(summary: Summary, names: Names) -> Section | None:
    """Return the order of the race in each tier, and what ``tuned`` changed; None if no trial is tuned."""
    groups = dict.fromkeys(trial.group for trial in summary.trials if "tuned" in trial.tiers)
    found = [Section(title, list(_parts(title, summary, names))) for title in groups]
    return Section("Documented and tuned", found, _OF_TIERS, id="tiers") if found else None


def _parts(group: str, summary: Summary, names: Names) -> Iterator[Part]:
    """Yield the race of a group in each tier, what ``tuned`` changed for a trial, and for which it changes nothing."""
    trials = {trial.id: trial for trial in summary.trials}
    races = {
        tier: [place for place in ranking if place.group == group] for tier, ranking in summary.tier_ranking.items()
    }
    if orders := [(tier, _order(places, trials, names)) for tier, places in races.items() if places]:
        yield Pairs(orders)
    if tuned := [each for each in summary.tuned if each.group == group]:
        columns = [Column("tuned is so many times as fast"), Column("what tuned changed", "prose")]
        rows = [_tuned_row(each, names.without_tier(trials[each.trial])) for each in tuned]
        yield SectionTable(columns, rows, label=f"What tuned changed: {group}")
    members = [trial for trial in summary.trials if trial.group == group]
    if unchanged := [names.without_tier(each) for each in members if _unchanged(each)]:
        yield Sentences([f"Tuned changes nothing for {', '.join(unchanged)}."])


def _unchanged(trial: TrialSummary) -> bool:
    return trial.tuning == "documented" and "tuned" in trial.tiers


def _order(places: Sequence[RankedTrial], trials: dict[str, TrialSummary], names: Names) -> str:
    return ", ".join(_place(place, names.without_tier(trials[place.trial])) for place in places)


def _place(place: RankedTrial, name: str) -> str:
    if place.rank == 1:
        return f"1 {name}"
    return f"{place.rank}{'=' if place.tied_with_best else ''} {name} {slowdown(place).text}"


def _tuned_row(tuned: TunedTrial, name: str) -> TableRow:
    changed = ", ".join(
        f"{option}={_value(change.tuned)} (documented {_value(change.documented)})"
        for option, change in tuned.changed.items()
    )
    found = tuned.speedup
    if found is None:
        sentence = f"{name}: not measured in both tiers; tuned has {changed}"
        return TableRow(name, cells(UNKNOWN, changed), sentence=sentence)
    tied = found.low is not None and found.high is not None and found.low <= 1.0 <= found.high
    speedup = Cell(*ratio(found), note="shows no difference" if tied else "")
    doubt = ", which shows no difference" if tied else ""
    sentence = f"{name}: {ratio(found).line} as fast as documented{doubt}, by {changed}"
    return TableRow(name, [speedup, Cell(changed)], sentence=sentence)


def _value(value: Any) -> str:  # noqa: ANN401 - any value of an option
    """As a study file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
