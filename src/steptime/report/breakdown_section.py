"""Where the time of a step goes, as a section: phases, pictures, what frameworks themselves report, and notes.

The charts of steps that were broken down, with the rows of each: numbers are picked, their units changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from steptime.analysis.ablation.form import Account, Difference, Gap, Phase, PopEfficiencies, gap
from steptime.document.charts.chart import Figure, Spec, parts, picture
from steptime.document.charts.phases import gap_chart, heat_chart, overlap_chart, phases_chart
from steptime.document.number_format import UNKNOWN, Shown, count, listed, percent, seconds, seconds_apart, time_unit
from steptime.document.section import (
    Cell,
    Chooser,
    Column,
    Figures,
    Pairs,
    Part,
    Section,
    SectionTable,
    Sentences,
    Style,
    TableRow,
    cells,
    mark_notes,
    short_marks,
)
from steptime.phases import REST
from steptime.report.breakdown import EXPLANATION, TITLES, BreakdownGroup, BreakdownRow, breakdown_groups
from steptime.report.groups import RankedGroup, RankedRow
from steptime.results.ablation_records import TOGETHER
from steptime.results.json_form import Interval

MOST_PAIRED = 8
"""Of so many trials of a group, the fastest, any two are compared; 28 pairs."""
MOST_PAIRS, MOST_MAPS = 84, 16
"""Comparisons and heat maps on a page, over all its groups."""
_MOST_CELLS = 480
"""Of a heat map; a page stays small."""
_NEGLIGIBLE_SHARE = 1e-9
"""Of a step."""
Pair = tuple[BreakdownRow, BreakdownRow, Gap]


def phase_figures(group: BreakdownGroup) -> list[Figure]:
    """Return the stacked phases of a group's trials, and how much of their communication is covered."""
    figures = []
    factor, unit = _unit(group)
    titles = {name: TITLES[name] for name in group.shown}
    for rows in parts(group.rows):
        bars = [{"name": row.row.label, "shown": row.step.line} for row in rows]
        stages = [stage for row in rows for stage in _stages(row, factor)]
        figures.append(picture("Where the time of a step goes", phases_chart(bars, stages, titles, unit), group.title))
    covered = [spec for row in group.rows if (spec := _overlap(row, factor))]
    return figures + [
        picture("Communication that is covered", overlap_chart(specs, unit), group.title) for specs in parts(covered)
    ]


def heat_figures(group: BreakdownGroup, most: int) -> list[Figure]:
    """Return a map of workers and steps for those ``most`` trials that have the largest imbalance."""
    found = [(row, row.breakdown.imbalance) for row in group.rows if row.breakdown.imbalance]
    found.sort(key=lambda pair: pair[1].factor, reverse=True)
    figures = []
    for row, imbalance in found[:most]:
        steps = max(1, _MOST_CELLS // len(imbalance.workers))
        times = sorted(time for worker in imbalance.workers for time in worker.heat_s[:steps])
        if not times:
            continue
        factor, unit = time_unit(times[0])
        cells = [
            {"name": _worker(worker.rank, worker.host, imbalance.blamed_worker), "step": step, "time": time * factor}
            for worker in imbalance.workers
            for step, time in enumerate(worker.heat_s[:steps])
        ]
        # A few pauses must not make all else look alike: the longest fiftieth has the darkest shade.
        ends = times[0] * factor, times[int(0.98 * (len(times) - 1))] * factor
        figures.append(picture(f"{row.row.name}: {row.blame}", heat_chart(cells, ends, unit), group.title))
    return figures


def gap_figures(group: BreakdownGroup, most: int) -> list[Figure]:
    """Return the gaps between the pairs of ``chosen_pairs``."""
    return [_gap_figure(group, *pair) for pair in chosen_pairs(group, most)]


def chosen_pairs(group: BreakdownGroup, most: int) -> list[Pair]:
    """Return any two of a group's fastest trials and the slower ones against the fastest, the largest gaps first.

    At most ``most`` of them. All other gaps follow from these, each a difference of two.
    """
    rows = group.rows[:MOST_PAIRED]
    pairs = [*combinations(rows, 2), *((group.rows[0], row) for row in group.rows[MOST_PAIRED:])]
    found = [
        (one, other, gap(one.row.trial.id, one.breakdown, other.row.trial.id, other.breakdown)) for one, other in pairs
    ]
    found.sort(key=lambda each: abs(each[2].step_s.value_s), reverse=True)
    return found[:most]


def _gap_figure(group: BreakdownGroup, one: BreakdownRow, other: BreakdownRow, way: Gap) -> Figure:
    factor, unit = _unit(group)
    whole = _signed(way.step_s, (factor, unit))
    label = f"{one.row.name} → {other.row.name}: {whole.text}"
    title = f"From {one.row.name} to {other.row.name}: {whole.line}"
    rows = [_step(one, f"first: {one.row.name}", factor)]
    for name, part in way.parts.items():
        numbers = _numbers(part.value_s, part.low_s, part.high_s, factor)
        kind = "rest" if name == REST else "phase"
        # What neither has is no way from one to the other, nor is what rounding leaves of it.
        if any(
            abs(each or 0.0) > _NEGLIGIBLE_SHARE * abs(one.breakdown.step_s.value_s) * factor
            for each in numbers.values()
        ):
            rows.append({"name": TITLES[name], "shown": _signed(part, (factor, unit)).line, "kind": kind, **numbers})
    rows.append(_step(other, f"second: {other.row.name}", factor))
    folded = ", ".join(TITLES[name] for name in way.folded)
    note = f"In the rest, because one of both does not know it: {folded}." if folded else ""
    return replace(picture(title, gap_chart(rows, unit), group.title), label=label, note=note)


def _step(row: BreakdownRow, name: str, factor: float) -> Spec:
    return {"name": name, "shown": row.step.line, "kind": "step", **_of(row.breakdown.step_s, factor)}


def _signed(difference: Difference, unit: tuple[float, str]) -> Shown:
    shown = seconds_apart(difference.value_s, difference.low_s, difference.high_s, unit)
    return Shown(shown.text if shown.text.startswith(("-", "0.00 ")) else f"+{shown.text}", shown.interval)


def _stages(row: BreakdownRow, factor: float) -> Iterator[Spec]:
    for name in TITLES:
        phase = row.breakdown.phases.get(name)
        if phase is not None and phase.value_s:
            yield {"name": row.row.label, "phase": name, **_of(phase, factor)}


def _overlap(row: BreakdownRow, factor: float) -> Spec | None:
    found, exposed = row.breakdown.overlap, row.breakdown.phases.get("comm_exposed")
    if found is None or found.ratio is None or exposed is None:
        return None
    hidden = _of(found.comm_hidden_s, factor)
    shown = f"{100 * found.ratio:.3g} % covered"
    bounds = {"covered": hidden["value"], "low": hidden["low"], "high": hidden["high"]}
    return {"name": row.row.label, "shown": shown, **bounds, "exposed": max(0.0, exposed.value_s * factor)}


def _worker(rank: int, host: str, blamed: int | None) -> str:
    return f"worker {rank} ({host}){', to blame' if rank == blamed else ''}"


def _of(phase: Phase, factor: float) -> Spec:
    return _numbers(phase.value_s, phase.low_s, phase.high_s, factor)


def _numbers(value: float, low: float | None, high: float | None, factor: float) -> Spec:
    return {
        "value": value * factor,
        "low": None if low is None else low * factor,
        "high": None if high is None else high * factor,
    }


def _unit(group: BreakdownGroup) -> tuple[float, str]:
    return time_unit(min(row.breakdown.step_s.value_s for row in group.rows))


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
    with_accounts = next((group for group in found if any(row.breakdown.accounts for row in group.rows)), None)
    sections = [Section(group.title, list(_parts(group, compared, found[0], with_accounts))) for group in found]
    title = "Where the time of a step goes"
    return Section(title, sections, EXPLANATION, id="breakdown") if found else None


def _parts(
    group: BreakdownGroup, compared: int, first: BreakdownGroup, with_accounts: BreakdownGroup | None
) -> Iterator[Part]:
    """Yield what is known of a group; ``compared`` is the number of groups that share the page's pictures.

    What strokes are is explained in the ``first`` group, and frameworks' accounts in ``with_accounts``.
    """
    yield _phase_table(group)
    yield Figures(partial(phase_figures, group), note=_STROKES if group is first else "")
    pairs, maps = max(1, MOST_PAIRS // compared), max(1, MOST_MAPS // compared)
    yield Chooser(partial(gap_figures, group, pairs), "What makes one slower than the other", _WAYS)
    yield Figures(partial(heat_figures, group, maps), "How long each worker computed, step by step", _MAPS)
    if accounts := [_account_row(row, account) for row in group.rows for account in row.breakdown.accounts]:
        title = "What frameworks say of their steps, compared with the ablation"
        table = SectionTable(_ACCOUNT_COLUMNS, accounts, label=f"Own accounts: {group.title}")
        yield Section(title, [table], ABOUT_ACCOUNTS if group is with_accounts else "", folded=True, only="page")
    notes = [f"{row.row.name}: {note}." for row in group.rows for note in (*row.notes, *disagreements(row))]
    by_trial = [
        (row.row.name, f"{'. '.join(note[:1].upper() + note[1:] for note in row.notes)}.") for row in group.rows
    ]
    marks = mark_notes([(row.row.name, row.breakdown.flags) for row in group.rows])
    title = "Imbalance, overlap and what the breakdown costs, trial by trial"
    # The page has the accounts in a table.
    yield Section(title, [Sentences(notes, only="terminal"), Pairs(by_trial, only="page"), *marks], folded=True)


def _phase_table(group: BreakdownGroup) -> SectionTable:
    titles = ["mean step", *(TITLES[name] for name in group.shown)]
    columns = [Column(title.replace(" ", "\n", 1), unit=group.unit) for title in titles]
    rows = [
        TableRow(row.row.name, _cells(row, group.shown), under=short_marks(row.breakdown.flags)) for row in group.rows
    ]
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
_POP_NUMBERS = ("parallel", "load\nbalance", "communication", "serialisation", "transfer", "computation", "global")
_POP_COLUMNS = (*_POP_NUMBERS, "without\ninput wait")


def pop_section(groups: Sequence[RankedGroup]) -> Section | None:
    """Return the efficiencies of trials with several workers, and why others have none; None without a breakdown."""
    found = [Section(group.title, parts) for group in groups if (parts := _pop_parts(group))]
    if not found:
        return None
    return Section("POP efficiencies", found, _ABOUT_POP, id="pop")


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
