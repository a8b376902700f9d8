"""Where the time of a step goes, as a section: phases, pictures, what frameworks themselves report, and notes."""

from collections.abc import Iterator, Sequence
from functools import partial

from steptime.measurements.ablation.form import Account, PopEfficiencies
from steptime.measurements.ablation.records import TOGETHER
from steptime.measurements.json_form import Interval
from steptime.report.breakdown import EXPLANATION, TITLES, BreakdownGroup, BreakdownRow, breakdown_groups
from steptime.report.breakdown_figures import MOST_MAPS, MOST_PAIRS, gap_figures, heat_figures, phase_figures
from steptime.report.groups import RankedGroup, RankedRow
from steptime.report.number_format import UNKNOWN, Shown, count, listed, percent, seconds, time_unit
from steptime.report.section import (
    Cell,
    Chooser,
    Column,
    Figures,
    Part,
    Section,
    SectionTable,
    Sentences,
    Style,
    TableRow,
    cells,
    mark_notes,
)

ABOUT_ACCOUNTS = (
    "The framework's own timers and marks time the same part of a step in another way. A difference is of paired "
    "blocks; accounts agree where its whole interval is within 2 % of the step, and differ where all of it is beyond. "
    "Timers see a backward pass that is slowed down by what is sent meanwhile; the ablation counts that slowing as "
    "exposed communication."
)
_STROKES = (
    "Strokes below a bar are the intervals of its phases, around the end of each part; they are cut where they leave "
    "the picture."
)
_WAYS = (
    "A way from one step to another, phase by phase: to the right is time that the second takes longer. Thin strokes "
    "are intervals of the differences, cut where they leave the picture."
)
_MAPS = "Computation without any waiting: a slow worker is a dark line, a pause a dark spot."
_ACCOUNT_COLUMNS = (
    Column("source", "text"),
    Column("phase", "text"),
    *(Column(title) for title in ("by the framework", "by the ablation", "difference")),
    Column("verdict", "text"),
)
_VERDICTS = {True: "agrees", False: "differs", None: "not shown"}


def breakdown_section(groups: Sequence[RankedGroup]) -> Section | None:
    """Return where the time of a step goes; None if no trial was broken down."""
    found = breakdown_groups(groups)
    compared = max(1, sum(len(group.rows) > 1 for group in found))
    sections = [Section(group.title, list(_parts(group, compared))) for group in found]
    title = "Where the time of a step goes"
    return Section(title, sections, EXPLANATION, id="breakdown", link="Where time goes") if found else None


def _parts(group: BreakdownGroup, compared: int) -> Iterator[Part]:
    """Yield what is known of a group; ``compared`` is the number of groups that share the page's pictures."""
    yield _phase_table(group)
    yield Figures(partial(phase_figures, group), note=_STROKES)
    pairs, maps = max(1, MOST_PAIRS // compared), max(1, MOST_MAPS // compared)
    yield Chooser(partial(gap_figures, group, pairs), "What makes one slower than the other", _WAYS)
    yield Figures(partial(heat_figures, group, maps), "How long each worker computed, step by step", _MAPS)
    if accounts := [_account_row(row, account) for row in group.rows for account in row.breakdown.accounts]:
        title = "What frameworks say of their steps, compared with the ablation"
        table = SectionTable(_ACCOUNT_COLUMNS, accounts, label=f"Own accounts: {group.title}")
        yield Section(title, [table], ABOUT_ACCOUNTS, folded=True, only="page")
    notes = [f"{row.row.name}: {note}." for row in group.rows for note in (*row.notes, *disagreements(row))]
    marks = mark_notes([(row.row.name, row.breakdown.flags) for row in group.rows])
    title = "Imbalance, overlap and what the breakdown costs, trial by trial"
    yield Section(title, [Sentences(notes), marks], folded=True)


def _phase_table(group: BreakdownGroup) -> SectionTable:
    titles = ["mean step", *(TITLES[name] for name in group.shown)]
    columns = [Column(title.replace(" ", "\n", 1), unit=group.unit) for title in titles]
    rows = [TableRow(row.row.name, _cells(row, group.shown), under=row.breakdown.flags) for row in group.rows]
    return SectionTable([*columns, Column("closure")], rows, layouts=("stacked",), label=f"Phases: {group.title}")


def _cells(row: BreakdownRow, shown: Sequence[str]) -> list[Cell]:
    phases = [
        Cell(f"{cell.time.text}{cell.star}", cell.time.interval, cell.share.text if cell.time.interval else "")
        for cell in row.cells
        if cell.name in shown
    ]
    return [Cell(*row.step), *phases, Cell(row.closure, style="" if row.closed else "warning")]


def _account_row(row: BreakdownRow, account: Account) -> TableRow:
    """Return one duration of a trial, by the framework and by the ablation, with the verdict."""
    verdict = _VERDICTS[account.agrees] if account.by_ablation_s else UNKNOWN
    numbers = (_shown(row, each) for each in (account.native_s, account.by_ablation_s, account.difference_s))
    style: Style = "bad" if account.agrees is False else ""
    return TableRow(row.row.name, [*cells(account.source, _phases(account), *numbers), Cell(verdict, style=style)])


def disagreements(row: BreakdownRow) -> list[str]:
    """Return a sentence for each source of a trial that differs from the ablation."""
    differing: dict[str, list[str]] = {}
    for account in row.breakdown.accounts:
        if account.agrees is False:
            difference = f"{_phases(account)}, by {_shown(row, account.difference_s).line}"
            differing.setdefault(account.source, []).append(difference)
    return [f"{source} and ablation differ in {listed(found)}" for source, found in differing.items()]


def _phases(account: Account) -> str:
    return TOGETHER.join(TITLES.get(name, name) for name in account.phase.split(TOGETHER))


def _shown(row: BreakdownRow, found: Interval | None) -> Shown:
    unit = time_unit(row.breakdown.step_s.value_s)
    return seconds(found.value, found.low, found.high, unit) if found else Shown(UNKNOWN, "")


_ABOUT_POP = (
    "As the POP centre of excellence defines them, of the mean step of the breakdown: transfer is what exposed "
    "communication leaves of a step, load balance the mean computation over the slowest worker's, serialisation what "
    "is lost beside both. Communication is serialisation x transfer, parallel is load balance x communication, global "
    "is parallel x computation. Computation is useful time for a sample at fewer workers over that here. Waiting for "
    "input counts as useful; the last column is the step without it. Above 100 % is noise, unless the interval is too."
)
_POP_COLUMNS = (
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
    found = [Section(group.title, parts) for group in groups if (parts := _pop_parts(group))]
    if not found:
        return None
    return Section("POP efficiencies", found, _ABOUT_POP, id="pop", link="Efficiencies", folded=True)


def _pop_parts(group: RankedGroup) -> list[Part]:
    several = [row for row in group.rows if row.trial.workers > 1]
    rows = [_pop_row(row, row.trial.pop) for row in several if row.trial.pop]
    parts: list[Part] = []
    if rows:
        columns = [Column(title) for title in _POP_COLUMNS]
        parts.append(SectionTable(columns, rows, layouts=("stacked",), label=f"POP efficiencies: {group.title}"))
    refused = [
        f"{row.name}: {row.trial.breakdown.pop_refused}."
        for row in several
        if row.trial.breakdown and row.trial.breakdown.pop_refused
    ]
    return [*parts, Sentences(refused)] if refused else parts


def _pop_row(row: RankedRow, pop: PopEfficiencies) -> TableRow:
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
