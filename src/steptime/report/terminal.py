"""The report for a terminal: one ranked table per group, the equivalence check, and what has no rank.

Where the terminal is wide enough a trial is one line, with quantiles of its steps where these fit too; where it is
narrower, intervals are under their numbers; where even that does not fit, a trial is a paragraph.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from steptime.measurements.net.form import NetSummary
from steptime.measurements.summary_form import Summary
from steptime.report.answer import answer, paper_line
from steptime.report.conditions import machine_in_a_line, passed_checks, set_aside_in_words
from steptime.report.groups import RankedGroup, RankedRow, ranked_groups, unranked, unranked_in_words, verdict
from steptime.report.number_format import Shown, baseline, count, published
from steptime.report.section import Cell, Column, Layout, Pairs, Part, Section, SectionTable, Sentences, Style, TableRow
from steptime.report.sections import StudyFindings, sections
from steptime.report.trial_names import Names, check_name

OldLayout = Literal["wide", "lines", "stacked", "paragraphs"]
_STYLES: dict[Style, str] = {
    "": "",
    "dim": "dim",
    "bold": "bold",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
}
_TITLES = ("bold", "bold cyan", "cyan")
"""Styles of a section's title, and of those within it."""
_NAME = 14
"""Letters that a column of names has at least; a name may be broken, a number may not."""
_ENDLESS = 10_000


def render(summary: Summary, net: NetSummary | None = None) -> RenderableType:
    """Return everything that ``steptime report`` prints; it fits itself into the width it is printed with."""
    return _Report(summary, net)


class _Report:
    def __init__(self, summary: Summary, net: NetSummary | None) -> None:
        self._summary = summary
        self._net = net
        self._names = Names(summary.trials)
        self._groups = ranked_groups(summary, self._names)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for line, style in self._lines_before():
            if line:
                yield wrapped(line, style, options)
        layout = _layout(self._groups, console, options)
        for group in self._groups:
            yield Text()
            yield wrapped(group.title, "bold cyan", options)
            yield _paragraphs(group) if layout == "paragraphs" else _table(group, layout)
            yield wrapped(verdict(group), "bold", options)
            for flag in group.flags:
                yield wrapped(f"note: {flag} ({_bearers(group, flag)})", "dim", options, indent=2)
        for each in sections(StudyFindings(self._summary, self._net)):
            yield Text()
            yield SectionText([each])
        for title, title_style, lines, style in self._sections():
            yield Text()
            yield from section(title, title_style, lines, options, style)

    def _lines_before(self) -> Iterator[tuple[str, str]]:
        yield self._summary.study, "bold"
        yield self._summary.question, ""
        yield paper_line(self._summary), "dim"
        yield answer(self._summary), ""
        yield machine_in_a_line(self._summary.machine), "dim"
        yield from ((each.sentence, "dim") for each in self._summary.datasets)
        if not self._groups and not self._summary.accuracy:
            yield "No trial has a result yet.", "yellow"

    def _sections(self) -> Iterator[tuple[str, str, Sequence[str], str]]:
        """Yield titles and lines, each with its style."""
        summary = self._summary
        if summary.published:
            lines = [f"{found.claim}: {published(found)} [{found.source}]" for found in summary.published]
            yield "Published by others, compared with the average measured here", "bold", lines, ""
        failed = [check for check in summary.equivalence if not check.passed]
        if summary.equivalence:
            lines = [
                f"not passed: {check_name(check, summary.equivalence)}, {check.workload}, "
                f"{count(check.workers, 'worker')}: {check.reason}"
                for check in failed
            ]
            lines += [
                f"{check_name(check, summary.equivalence)}, {check.workload}: "
                f"{count(check.crashes, 'run')} died of a signal and passed when repeated"
                for check in summary.equivalence
                if check.crashes and check.passed
            ]
            yield passed_checks(summary.equivalence), "red" if failed else "green", lines, "red"
        else:
            sentence = "The equivalence check was not run: these trials may train different things."
            yield sentence, "yellow", [], ""
        if without := unranked_in_words(summary, self._names):
            held = count(len(unranked(summary)), "trial")
            yield f"Without a rank: {held}", "bold", without, "red"
        if summary.skipped:
            yield "Skipped, because they cannot be", "bold", summary.skipped, "dim"
        if summary.problems:
            yield set_aside_in_words(summary.set_aside), "bold", summary.problems, "yellow"
        if self._groups:
            level = self._groups[0].rows[0].trial.step_time_s.level
            yield (
                (
                    f"Step times are means over steps; their intervals hold the true value with {100 * level:.0f} % "
                    "confidence. Efficiency is throughput per worker, relative to the baseline named with it. "
                    "= marks what cannot be distinguished from the best."
                ),
                "dim",
                [],
                "",
            )


class SectionText:
    """Sections as text, which fits itself into the width that it is printed with."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = [section for section in sections if section.is_within("terminal")]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for number, section in enumerate(self._sections):
            if number:
                yield Text()
            yield from _section_lines(section, _layouts(section, console, options), options)


def _layouts(section: Section, console: Console, options: ConsoleOptions) -> Callable[[SectionTable], Layout | None]:
    """Return what chooses the layout of each table of a section."""
    if not section.alike:
        return lambda table: _first_layout([table], console, options)
    common = _first_layout(list(_tables(section)), console, options)
    return lambda _: common


def _first_layout(tables: Sequence[SectionTable], console: Console, options: ConsoleOptions) -> Layout | None:
    """Return the first of the layouts of the tables in which all of them fit; None if there is none."""
    layouts = tables[0].layouts if tables else ()
    return next((each for each in layouts if all(_fits_as(table, each, console, options) for table in tables)), None)


def _fits_as(table: SectionTable, layout: Layout, console: Console, options: ConsoleOptions) -> bool:
    return fits(_grid(table, layout), console, options, broken_names=layout == "stacked")


def _tables(section: Section) -> Iterator[SectionTable]:
    for part in section.within("terminal"):
        if isinstance(part, SectionTable):
            yield part
        elif isinstance(part, Section):
            yield from _tables(part)


def _section_lines(
    section: Section, layout_of: Callable[[SectionTable], Layout | None], options: ConsoleOptions, level: int = 0
) -> Iterator[RenderableType]:
    yield wrapped(section.title, _STYLES[section.style] if section.style else _TITLES[level], options)
    if section.note:
        yield wrapped(section.note, "dim", options, indent=2)
    if section.verdict:
        yield wrapped(section.verdict, "bold", options)
    for number, part in enumerate(section.within("terminal")):
        if isinstance(part, Section):
            if number or section.note:
                yield Text()
            yield from _section_lines(part, layout_of, options, level + 1)
        elif isinstance(part, SectionTable) and part.layouts:
            layout = layout_of(part)
            yield from [_grid(part, layout)] if layout else (_list(part, row) for row in part.rows)
        else:
            for text, style in _texts(part):
                yield wrapped(text, _STYLES[style], options, indent=2)


def _texts(part: Part) -> Iterator[tuple[str, Style]]:
    """Yield the paragraphs of a part, each with its style."""
    if isinstance(part, Sentences):
        yield from ((text, part.style) for text in part.texts)
    elif isinstance(part, Pairs):
        yield from ((f"{name}: {value}", "") for name, value in part.pairs)
    elif isinstance(part, SectionTable):
        yield from ((part.sentence(row), "") for row in part.rows)


def _grid(table: SectionTable, layout: Layout) -> Table:
    stacked = layout == "stacked"
    found = empty_table()
    if table.has_ranks:
        found.add_column("#", no_wrap=True)
    found.add_column(table.names.replace(", ", ",\n") if stacked else table.names, min_width=_NAME)
    shown = table.columns_of(layout)
    for index, column in shown:
        heading = f"{column.title}\n({column.unit})" if column.unit else column.title
        number = column.kind == "number"
        # A number broken in two is worse than a narrow name: only names give way.
        found.add_column(
            heading if stacked else heading.replace("\n", " "),
            justify="right" if number else "left",
            no_wrap=column.kind != "prose",
            min_width=widest_line([_cell(row.cells[index], column, layout) for row in table.rows]) if number else None,
        )
    for row in table.rows:
        rank = [row.rank] if table.has_ranks else []
        texts = [
            Text(_cell(row.cells[index], column, layout), _STYLES[row.cells[index].style]) for index, column in shown
        ]
        found.add_row(*rank, Text(row.name), *texts, style="bold" if row.best else None)
    return found


def _cell(cell: Cell, column: Column, layout: Layout) -> str:
    cell = replace(cell, text=cell.text.replace(f" {column.unit}", "")) if column.unit else cell
    return "\n".join(filter(None, (cell.text, cell.interval, cell.note))) if layout == "stacked" else cell.line


def _list(table: SectionTable, row: TableRow) -> Table:
    """Return a row as a list: a line for each column."""
    found = Table.grid(padding=(0, 1))
    found.add_column()
    found.add_column(justify="right", no_wrap=True)
    found.add_column(overflow="fold")
    found.add_row(Text(f"{row.rank} {row.name}".strip(), style="bold"), "", "")
    for index, column in table.columns_of("list"):
        cell = row.cells[index]
        behind = ", ".join(filter(None, (cell.interval and f"({cell.interval})", cell.note)))
        title = column.title.replace("\n", " ")
        found.add_row(Text(f"  {title}"), Text(cell.text), Text(behind), style=_STYLES[cell.style])
    return found


def fits(table: Table, console: Console, options: ConsoleOptions, *, broken_names: bool = False) -> bool:
    """Whether a table fits into the width without breaking anything, or anything but names."""
    measured = Measurement.get(console, options.update(max_width=_ENDLESS), table)
    return (measured.minimum if broken_names else measured.maximum) <= options.max_width


def _layout(groups: Sequence[RankedGroup], console: Console, options: ConsoleOptions) -> OldLayout:
    """Return the first layout in which every group fits."""
    room = options.max_width
    endless = options.update(max_width=10_000)
    one_line: tuple[OldLayout, ...] = ("wide", "lines")
    for layout in one_line:
        if all(Measurement.get(console, endless, _table(group, layout)).maximum <= room for group in groups):
            return layout
    if all(Measurement.get(console, endless, _table(group, "stacked")).minimum <= room for group in groups):
        return "stacked"
    return "paragraphs"


def _table(group: RankedGroup, layout: OldLayout) -> Table:
    columns = _columns(group, layout)
    titles = [title for title, _ in columns]
    cells = [[_old_cell(number(row), layout) for _, number in columns] for row in group.rows]
    table = empty_table()
    table.add_column("#", no_wrap=True)
    table.add_column("framework,\nstrategy" if layout == "stacked" else "framework, strategy", min_width=14)
    for title, column in zip(titles, zip(*cells, strict=True), strict=True):
        # A number broken in two is worse than a narrow name: only names give way.
        room = widest_line(column)
        heading = title if layout == "stacked" else title.replace("\n", " ")
        table.add_column(heading, justify="right", no_wrap=True, min_width=room)
    for row, numbers in zip(group.rows, cells, strict=True):
        table.add_row(group.rank(row), Text(row.name), *numbers, style="bold" if row.place.rank == 1 else None)
    return table


def empty_table() -> Table:
    """Return a table without rows that has a rule below its headings alone."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)


def widest_line(cells: Sequence[str]) -> int:
    """Return the letters of the longest line of all cells."""
    return max(len(line) for cell in cells for line in cell.split("\n"))


def _columns(group: RankedGroup, layout: OldLayout) -> list[tuple[str, Callable[[RankedRow], Shown]]]:
    """Return the title of each column of numbers, and what it shows of a row."""
    columns: list[tuple[str, Callable[[RankedRow], Shown]]] = [
        ("samples/s", lambda row: row.rate),
        ("step time", lambda row: row.time),
        ("time against\nbest", lambda row: row.ratio),
    ]
    if group.has_efficiency:
        columns.append((("efficiency\n" + group.baseline.replace(" (", "\n(")).strip(), group.efficiency))
    if layout == "wide":
        columns.insert(2, ("median, p90, p99", lambda row: row.quantiles))
    return columns


def _old_cell(shown: Shown, layout: OldLayout) -> str:
    return f"{shown.text}\n{shown.interval}".strip() if layout == "stacked" else shown.line


def _paragraphs(group: RankedGroup) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in group.rows:
        rate = Shown(f"{row.rate.text} samples/s", row.rate.interval)
        lines = [row.name, rate.line, f"step time {row.time.line}", f"median, p90, p99 {row.quantiles.line}"]
        if row.place.rank > 1:
            lines.append(f"{row.ratio.line} the best's time")
        if baseline(row.trial):
            lines.append(f"efficiency {row.efficiency.line} {baseline(row.trial)}")
        table.add_row(group.rank(row), Text("\n".join(lines)), style="bold" if row.place.rank == 1 else None)
    return table


def _bearers(group: RankedGroup, flag: str) -> str:
    names = [row.name for row in group.rows if flag in row.trial.flags]
    return "all" if len(names) == len(group.rows) else ", ".join(names)


def section(
    title: str, title_style: str, lines: Sequence[str], options: ConsoleOptions, style: str = ""
) -> Iterator[RenderableType]:
    """Yield a title and the lines below it, indented."""
    yield wrapped(title, title_style, options)
    for line in lines:
        yield wrapped(line, style, options, indent=2)


def wrapped(line: str, style: str, options: ConsoleOptions, indent: int = 0) -> RenderableType:
    """Return a paragraph without the spaces that rich would put behind each line; they annoy in a file."""
    lines = textwrap.wrap(
        line,
        options.max_width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (2 * indent),
        break_on_hyphens=False,
    )
    return Text("\n".join(lines), style=style)
