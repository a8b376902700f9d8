"""The POP efficiencies of a study's broken-down trials, as a section."""

from collections.abc import Sequence

from steptime.measurements.ablation.form import PopEfficiencies
from steptime.measurements.json_form import Interval
from steptime.report.groups import RankedGroup, RankedRow
from steptime.report.number_format import UNKNOWN, Shown, count, percent
from steptime.report.section import Cell, Column, Part, Section, SectionTable, Sentences, TableRow, cells

EXPLANATION = (
    "As the POP centre of excellence defines them, of the mean step of the breakdown: transfer is what exposed "
    "communication leaves of a step, load balance the mean computation over the slowest worker's, serialisation what "
    "is lost beside both. Communication is serialisation x transfer, parallel is load balance x communication, global "
    "is parallel x computation. Computation is useful time for a sample at fewer workers over that here. Waiting for "
    "input counts as useful; the last column is the step without it. Above 100 % is noise, unless the interval is too."
)
_COLUMNS = (
    "parallel",
    "load\nbalance",
    "commu-\nnication",
    "seriali-\nsation",
    "transfer",
    "compu-\ntation",
    "global",
    "without\ninput wait",
)


def pop_section(groups: Sequence[RankedGroup]) -> Section | None:
    """Return the efficiencies of trials with several workers, and why others have none; None without a breakdown."""
    found = [Section(group.title, parts) for group in groups if (parts := _parts(group))]
    if not found:
        return None
    return Section("POP efficiencies", found, EXPLANATION, id="pop", link="Efficiencies", folded=True)


def _parts(group: RankedGroup) -> list[Part]:
    several = [row for row in group.rows if row.trial.workers > 1]
    rows = [_row(row, row.trial.pop) for row in several if row.trial.pop]
    parts: list[Part] = []
    if rows:
        columns = [Column(title) for title in _COLUMNS]
        parts.append(SectionTable(columns, rows, layouts=("stacked",), label=f"POP efficiencies: {group.title}"))
    refused = [
        f"{row.name}: {row.trial.breakdown.pop_refused}."
        for row in several
        if row.trial.breakdown and row.trial.breakdown.pop_refused
    ]
    return [*parts, Sentences(refused)] if refused else parts


def _row(row: RankedRow, pop: PopEfficiencies) -> TableRow:
    shown = [pop.parallel, pop.load_balance, pop.communication, pop.serialisation, pop.transfer]
    computation = Cell(*_share(pop.computation), note=_reference(pop))
    rest = cells(_share(pop.global_efficiency), _share(pop.without_input_wait))
    return TableRow(row.name, [*cells(*(_share(each) for each in shown)), computation, *rest])


def _reference(pop: PopEfficiencies) -> str:
    if pop.reference_workers is None:
        return ""
    return f"of {count(pop.reference_workers, 'worker')}, {pop.scaling}"


def _share(found: Interval | None) -> Shown:
    return percent(found.value, found.low, found.high) if found else Shown(UNKNOWN, "")
