"""The report for a terminal: one ranked table per group, the equivalence check, and what has no rank.

Where the terminal is wide enough a trial is one line, with quantiles of its steps where these fit too; where it is
narrower, intervals are under their numbers; where even that does not fit, a trial is a paragraph.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from steptime.measurements.summary_form import Summary
from steptime.report import accuracy, breakdown, clusters, loaders, tiers
from steptime.report.answer import answer, paper_line
from steptime.report.asynchrony import EXPLANATION, learning_groups
from steptime.report.breakdown_text import render_breakdown
from steptime.report.conditions import machine_in_a_line, passed_checks, set_aside_in_words
from steptime.report.groups import RankedGroup, RankedRow, ranked_groups, unranked, unranked_in_words, verdict
from steptime.report.models import model_tables
from steptime.report.number_format import Shown, baseline, count, published
from steptime.report.schedule_table import ScheduleTable, schedule_table
from steptime.report.trial_names import Names, check_name

Layout = Literal["wide", "lines", "stacked", "paragraphs"]


def render(summary: Summary) -> RenderableType:
    """Return everything that ``steptime report`` prints; it fits itself into the width it is printed with."""
    return _Report(summary)


class _Report:
    def __init__(self, summary: Summary) -> None:
        self._summary = summary
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
        yield from self._accuracy(console, options)
        yield from self._tiers(options)
        yield from self._loaders(options)
        yield from self._models(options)
        yield from self._breakdown(options)
        yield from self._clusters(options)
        for title, title_style, lines, style in self._sections():
            yield Text()
            yield from section(title, title_style, lines, options, style)

    def _accuracy(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        groups = accuracy.accuracy_groups(self._summary)
        if groups:
            yield from _heading("What trainings reached", accuracy.EXPLANATION, options)
        for group in groups:
            yield from section(group.title, "bold cyan", [row.line for row in group.rows], options)
            if table := schedule_table(group):
                yield Text()
                yield from _by_schedule(table, console, options)

    def _tiers(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        groups = tiers.tier_groups(self._summary, self._names)
        if groups:
            yield from _heading("Documented and tuned", tiers.EXPLANATION, options)
        for group in groups:
            yield from section(group.title, "cyan", group.lines, options)

    def _loaders(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        tables = loaders.loader_tables(self._summary)
        if tables:
            yield from _heading("Loader or training: who limits", loaders.EXPLANATION, options)
        for table in tables:
            yield from section(table.title, "cyan", table.lines, options)

    def _models(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        for table in model_tables(self._summary):
            yield Text()
            yield from section(table.title, "bold", table.lines, options)

    def _breakdown(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        groups = breakdown.breakdown_groups(self._groups)
        if groups:
            yield from _heading("Where the time of a step goes", breakdown.EXPLANATION, options)
        for group in groups:
            yield wrapped(group.title, "cyan", options)
            yield render_breakdown(group)

    def _clusters(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        found = clusters.clusters(self._summary, self._names)
        if found:
            yield from _heading(*clusters.about(self._summary), options)
        for cluster in found:
            yield from section(cluster.heading, "yellow" if cluster.flagged else "cyan", cluster.lines, options)

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
        learning = learning_groups(self._groups)
        if learning:
            yield "Stale updates", "bold", [EXPLANATION], "dim"
        for group in learning:
            yield group.title, "cyan", [row.line for row in group.rows], ""
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
        if sites := clusters.sites(summary):
            yield f"Measured on {count(len(summary.sites), 'set')} of hosts", "bold", sites, "dim"
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


def _layout(groups: Sequence[RankedGroup], console: Console, options: ConsoleOptions) -> Layout:
    """Return the first layout in which every group fits."""
    room = options.max_width
    endless = options.update(max_width=10_000)
    one_line: tuple[Layout, ...] = ("wide", "lines")
    for layout in one_line:
        if all(Measurement.get(console, endless, _table(group, layout)).maximum <= room for group in groups):
            return layout
    if all(Measurement.get(console, endless, _table(group, "stacked")).minimum <= room for group in groups):
        return "stacked"
    return "paragraphs"


def _table(group: RankedGroup, layout: Layout) -> Table:
    columns = _columns(group, layout)
    titles = [title for title, _ in columns]
    cells = [[_cell(number(row), layout) for _, number in columns] for row in group.rows]
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


def _columns(group: RankedGroup, layout: Layout) -> list[tuple[str, Callable[[RankedRow], Shown]]]:
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


def _cell(shown: Shown, layout: Layout) -> str:
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


def _by_schedule(found: ScheduleTable, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Yield the table, intervals beside or under their numbers, or its rows as sentences where neither fits."""
    layouts: tuple[Layout, ...] = ("lines", "stacked")
    for layout in layouts:
        table = empty_table()
        table.add_column("", min_width=12)
        rows = [[_cell(shown, layout) for shown in row.cells] for row in found.rows]
        for schedule, column in zip(found.schedules, zip(*rows, strict=True), strict=True):
            table.add_column(schedule, justify="right", min_width=widest_line(column))
        for row, cells in zip(found.rows, rows, strict=True):
            table.add_row(Text(row.name), *cells)
        if Measurement.get(console, options.update(max_width=10_000), table).minimum <= options.max_width:
            yield wrapped(found.title, "cyan", options)
            yield table
            return
    yield from section(found.title, "cyan", list(found.lines), options)


def _bearers(group: RankedGroup, flag: str) -> str:
    names = [row.name for row in group.rows if flag in row.trial.flags]
    return "all" if len(names) == len(group.rows) else ", ".join(names)


def _heading(title: str, explanation: str, options: ConsoleOptions) -> Iterator[RenderableType]:
    yield Text()
    yield from section(title, "bold", [explanation], options, "dim")


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
