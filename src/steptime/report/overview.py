"""The report at a glance: a sentence and a table for each workload, notes once, and what to type next.

The end of a run: about a screen. Everything else is in ``terminal`` (``steptime report --all``) and on the page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from steptime.analysis.summary_form import Summary
from steptime.diagnosis.form import Diagnosis
from steptime.document.number_format import count
from steptime.phases import PHASES
from steptime.report import conditions, equivalence, loaders
from steptime.report.advice import largest_finding
from steptime.report.answer import first_answer, in_order, paper_line
from steptime.report.breakdown import BreakdownRow, breakdown_groups
from steptime.report.groups import RankedGroup, RankedRow, clause, ranked_groups, scaling_of, verdict
from steptime.report.learning.accuracy import accuracy_groups
from steptime.report.ranking import NO_RESULT, SHORT_LAYOUTS, RankingColumn, short_columns
from steptime.report.terminal import empty_table, fits, narrowed, section, widest_line, wrapped
from steptime.report.trial_names import Names
from steptime.report.unranked import unranked, unranked_in_words

MOST_LINES = 45
"""Of what ends a run, at 100 columns."""
_ROWS = (1000, 6, 4, 3, 2)
"""Of a group, tried in this order until everything fits."""
_MOST_CLAUSES = 3
"""Groups of a workload that its sentence is about: those listed last, of most workers."""
_MOST_LINES = 5
"""Of one kind: trials without a rank, failed checks, records set aside, trainings of a group."""
_ROUNDED_TO_ZERO = "0.00 %"
_SHORT = {phase.name: phase.short_title for phase in PHASES}


def overview(summary: Summary, lines: int = MOST_LINES, diagnosis: Diagnosis | None = None) -> RenderableType:
    """Return the short report, which fits itself into the width it is printed with.

    Where it would take more than ``lines``, groups are cut to their best, and then the phases are left out.
    """
    return _Overview(summary, lines, diagnosis)


def sentences(summary: Summary) -> list[str]:
    """Return the verdict of each workload that has several trials to compare, or several numbers of workers."""
    workloads = _workloads(ranked_groups(summary, Names(summary.trials)))
    return [each.sentence for each in workloads if each.scaling or any(len(group.rows) > 1 for group in each.groups)]


def scaling_sentences(groups: Sequence[RankedGroup]) -> list[str]:
    """Return for each workload what more workers bring."""
    workloads = _workloads(groups)
    return [f"{f'{each.name}: ' if len(workloads) > 1 else ''}{each.scaling}" for each in workloads if each.scaling]


@dataclass(frozen=True)
class Verdict:
    """Who is fastest in a group."""

    label: str
    """What the group is, where there are several."""
    text: str
    leads: bool
    """Whether it is the last group of its workload, of most workers."""

    def line(self, text: str) -> str:
        """Return a part of the text, behind what it is about."""
        return f"{self.label}: {text}" if self.label else text


def verdicts(groups: Sequence[RankedGroup]) -> list[Verdict]:
    """Return the verdict of each group that compares several trials."""
    compared = [group for group in groups if len(group.rows) > 1]
    return [
        Verdict(
            ", ".join(filter(None, (workload.name, label))) if len(compared) > 1 else "",
            verdict(group),
            group is workload.groups[-1],
        )
        for workload in _workloads(compared)
        for label, group in zip(workload.labels, workload.groups, strict=True)
    ]


@dataclass(frozen=True)
class _WorkloadRanking:
    """The groups of one workload, and the conditions in which they differ."""

    name: str
    title: str
    """What all groups have in common."""
    groups: list[RankedGroup]
    labels: list[str]
    """For each group, the conditions that the others lack; empty for a single one."""

    @property
    def sentence(self) -> str:
        """Who is fastest under which conditions."""
        shown = list(zip(self.labels, self.groups, strict=True))[-_MOST_CLAUSES:]
        clauses = [f"{label}: {clause(group)}" if label else clause(group) for label, group in shown]
        left = len(self.groups) - len(shown)
        rest = f" {count(left, 'further group')} in the table." if left else ""
        verdict = f"{self.name}{', ' if shown[0][0] else ': '}{'; '.join(clauses)}.{rest}"
        return f"{verdict} {self.scaling}".rstrip()

    @property
    def scaling(self) -> str:
        """What more workers bring, as a sentence; empty where one number of them was measured."""
        text = scaling_of(self.groups)
        return f"{text[:1].upper()}{text[1:]}." if text.startswith("whether") else f"{text}." if text else ""

    @property
    def baseline(self) -> str:
        """What all efficiencies are relative to; empty where that differs."""
        found = {group.baseline for group in self.groups if group.has_efficiency}
        return found.pop() if len(found) == 1 else ""


def _workloads(groups: Sequence[RankedGroup]) -> list[_WorkloadRanking]:
    workloads = []
    for name in dict.fromkeys(group.rows[0].trial.workload for group in groups):
        own = [group for group in groups if group.rows[0].trial.workload == name]
        parts = [group.title.split(", ") for group in own]
        common = [part for part in parts[0] if all(part in others for others in parts)]
        labels = [", ".join(part for part in each if part not in common) for each in parts]
        workloads.append(_WorkloadRanking(name, ", ".join(common) or name, own, labels))
    return workloads


class _Overview:
    def __init__(self, summary: Summary, lines: int, diagnosis: Diagnosis | None) -> None:
        self._summary = summary
        self._diagnosis = diagnosis
        self._lines = lines
        self._names = Names(summary.trials)
        self._groups = ranked_groups(summary, self._names)
        self._workloads = _workloads(self._groups)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        whole: list[RenderableType] = []
        for phases, most in product((True, False), _ROWS):
            whole = list(self._parts(console, options, most, phases=phases))
            if len(console.render_lines(Group(*whole), options)) <= self._lines:
                break
        yield from whole

    def _parts(self, console: Console, options: ConsoleOptions, most: int, *, phases: bool) -> Iterator[RenderableType]:
        for line, style in self._first_lines():
            if line:
                yield wrapped(line, style, options)
        for workload in self._workloads:
            yield Text()
            yield wrapped(workload.title, "bold cyan", options)
            yield from _ranking(workload, most, console, options)
        yield from self._learned(options)
        yield from self._limits(options)
        if phases:
            yield from self._phases(console, options)
        yield Text()
        for line, style in self._last_lines():
            yield wrapped(line, style, options)

    def _first_lines(self) -> Iterator[tuple[str, str]]:
        summary = self._summary
        yield f"{summary.study}: {summary.question}" if summary.question else summary.study, "bold"
        largest = ""
        if self._diagnosis:
            largest = largest_finding(self._diagnosis, {each.id: self._names.full(each) for each in summary.trials})
        fastest = [(workload.sentence, "bold") for workload in self._workloads]
        yield from in_order(summary, (first_answer(summary), "bold"), [*fastest, (largest, "")])
        if not self._groups and not summary.accuracy:
            yield NO_RESULT, "yellow"
        yield paper_line(summary), "dim"

    def _learned(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        for group in accuracy_groups(self._summary):
            rows = group.rows[:_MOST_LINES]
            lines = [f"{row.rank} {row.name}: final {row.final}, {row.seconds} of training" for row in rows]
            left = len(group.rows) - len(rows)
            yield Text()
            yield from section(group.title, "bold cyan", [*lines, *([f"and {left} behind"] if left else [])], options)

    def _limits(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        for table in loaders.loader_tables(self._summary):
            yield Text()
            yield from section(table.title, "bold cyan", table.sentences[: min(len(table.rows), _MOST_LINES)], options)

    def _phases(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield where the steps of the fastest go."""
        several = len(self._workloads) > 1
        labels = {
            group.title: ", ".join(filter(None, [each.name if several else "", label]))
            for each in self._workloads
            for group, label in zip(each.groups, each.labels, strict=True)
        }
        groups = breakdown_groups(self._groups)
        if not groups:
            return
        rows = [(labels[group.title], group.rows[0]) for group in groups]
        shown = [name for name in _SHORT if any(_share(row, name) for _, row in rows)]
        table = _phase_table(rows, shown)
        yield Text()
        title = "Where the time of a step goes, in shares of the step of the breakdown runs"
        doubts = [f"{row.row.name}: {row.undecided}." for _, row in rows if row.undecided]
        doubts += [f"{label or row.row.name}: {row.gap}." for label, row in rows if row.gap]
        if fits(table, console, options, broken_names=True):
            yield wrapped(title, "bold cyan", options)
            yield narrowed(table, console, options)
            yield from (wrapped(line, "yellow", options) for line in doubts)
            return
        yield from section(title, "bold cyan", [*(_phase_line(*row, shown) for row in rows), *doubts], options)

    def _last_lines(self) -> Iterator[tuple[str, str]]:
        """Yield what holds for all of it, each once, with its style."""
        summary = self._summary
        without_rank = [trial.id for trial in unranked(summary)]
        for note in conditions.notes([trial for trial in summary.trials if trial.id not in without_rank]):
            yield f"Note: {note}", "dim"
        if without := unranked_in_words(summary, self._names):
            yield f"Without a rank: {count(len(without_rank), 'trial')}", "bold"
            yield from ((f"  {line}", "red") for line in _few(without))
        if summary.problems:
            yield conditions.set_aside_in_words(summary.set_aside), "yellow"
            yield from ((f"  {line}", "yellow") for line in _few(summary.problems))
        yield from self._checks()
        yield from ((each.sentence, "dim") for each in summary.datasets)
        machine = conditions.machine_in_a_line(summary.machine)
        level = ""
        if self._groups:
            percent = 100 * self._groups[0].rows[0].trial.step_time_s.level
            level = f"Intervals: {percent:.0f} %; = cannot be distinguished from the best."
        yield " ".join(filter(None, [f"Machine: {machine}." if machine else "", level])), "dim"

    def _checks(self) -> Iterator[tuple[str, str]]:
        summary = self._summary
        skipped = " Impossible combinations were skipped." if summary.skipped else ""
        if not summary.equivalence:
            yield f"{equivalence.not_checked(summary.trials)}{skipped}", "yellow"
            return
        failed = equivalence.failed_checks(summary.equivalence)
        yield f"{equivalence.passed_checks(summary.equivalence)}.{skipped}", "red" if failed else "green"
        yield from ((f"  {line}", "red") for line in _few(failed))


def _ranking(
    workload: _WorkloadRanking, most: int, console: Console, options: ConsoleOptions
) -> Iterator[RenderableType]:
    """Yield the table with the most columns that fit; a name may be broken, a number may not: rows are then lines."""
    tables = [_table(workload, most, short_columns(workload.groups, layout)) for layout in SHORT_LAYOUTS]
    whole = next((table for table in tables if fits(table, console, options)), None)
    if whole is not None:
        yield whole
    elif fits(tables[-1], console, options, broken_names=True):
        yield narrowed(tables[-1], console, options)
    else:
        for group, label in zip(workload.groups, workload.labels, strict=True):
            rows = _best(group, most)
            lines = [f"{group.rank(row)} {row.name}: {row.time.line}".strip() for row in rows]
            left = len(group.rows) - len(rows)
            yield from section(label, "", [*lines, *([f"and {left} slower"] if left else [])], options)


def _table(workload: _WorkloadRanking, most: int, columns: Sequence[RankingColumn]) -> Table:
    table = empty_table()
    table.add_column("", no_wrap=max(map(len, workload.labels)) <= _WHOLE_LABEL)
    table.add_column("#", no_wrap=True)
    table.add_column("framework, strategy", min_width=14)
    for column in columns:
        heading = column.short_heading(workload.baseline)
        lines = [column.cell(group, row).line for group in workload.groups for row in _best(group, most)]
        table.add_column(heading, justify="right", no_wrap=True, min_width=widest_line([heading, *lines]))
    for group, label in zip(workload.groups, workload.labels, strict=True):
        rows = _best(group, most)
        for row in rows:
            cells = [column.cell(group, row).line for column in columns]
            style = "bold" if row.place.rank == 1 else None
            table.add_row(label if row is rows[0] else "", group.rank(row), Text(row.name), *cells, style=style)
        if len(rows) < len(group.rows):
            table.add_row("", "", Text(f"and {len(group.rows) - len(rows)} slower", style="dim"))
    return table


def _best(group: RankedGroup, most: int) -> list[RankedRow]:
    """Return the first rows of a group; the line about a single one left out would be as long as that one."""
    return group.rows if len(group.rows) <= most + 1 else group.rows[:most]


_WHOLE_LABEL = 30
"""Letters of a label that is not broken."""


def _phase_table(rows: Sequence[tuple[str, BreakdownRow]], shown: Sequence[str]) -> Table:
    """Return the labels, steps and shares of the phases ``shown``, a row for each of ``rows``."""
    table = empty_table()
    table.add_column("", min_width=min(_WHOLE_LABEL, max(len(label) for label, _ in rows)))
    table.add_column("fastest", min_width=14)
    columns = {"step": [row.step.text for _, row in rows]}
    columns |= {_SHORT[name]: [_share(row, name) for _, row in rows] for name in shown}
    for title, cells in columns.items():
        table.add_column(title, justify="right", no_wrap=True, min_width=widest_line([title, *cells]))
    for label, row in rows:
        table.add_row(label, Text(row.row.name), row.step.text, *(_share(row, name) for name in shown))
    return table


def _phase_line(label: str, row: BreakdownRow, shown: Sequence[str]) -> str:
    """Return the same of a row as a sentence, for a terminal too narrow for the table."""
    shares = ", ".join(f"{_SHORT[name]} {share}" for name in shown if (share := _share(row, name)))
    return f"{label}, {row.row.name}: {row.step.text}; {shares}"


def _share(row: BreakdownRow, name: str) -> str:
    cell = next(cell for cell in row.cells if cell.name == name)
    return "" if cell.is_none or cell.share.text == _ROUNDED_TO_ZERO else cell.share.text


def _few(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"  and {left} more"] if left > 0 else [])]
