"""Where the time of a step goes, for a terminal: a table where it fits, otherwise a list for every trial."""

import textwrap
from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from steptime.report.breakdown import BreakdownGroup, BreakdownRow, disagreements

_NAME = 14
"""Letters that a name has at least; it may be broken, numbers may not."""


def render_breakdown(group: BreakdownGroup) -> RenderableType:
    """Return a group's phases; they fit themselves into the width that they are printed with."""
    return _BreakdownTable(group)


class _BreakdownTable:
    def __init__(self, group: BreakdownGroup) -> None:
        self._group = group

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table = _table(self._group)
        fits = Measurement.get(console, options.update(max_width=10_000), table).minimum <= options.max_width
        if fits:
            yield table
        for row in self._group.rows:
            if not fits:
                yield _list(row, self._group.shown)
            yield _notes(row, options.max_width, named=fits)


def _table(group: BreakdownGroup) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("framework, strategy", min_width=_NAME)
    shown = set(group.shown)
    titles = ["step", *(cell.title for cell in group.rows[0].cells if cell.name in shown)]
    rows = [_cells(row, shown, group.unit) for row in group.rows]
    for index, title in enumerate(titles):
        lines = [line for cells in rows for line in cells[index].split("\n")]
        heading = f"{title}\n({group.unit})".replace(" ", "\n", 1)
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(map(len, lines)))
    table.add_column("closure", justify="right", no_wrap=True)
    for row, cells in zip(group.rows, rows, strict=True):
        closure = Text(row.closure, style="" if row.closed else "yellow")
        table.add_row(Text(row.row.name), *cells, closure)
    return table


def _cells(row: BreakdownRow, shown: set[str], unit: str) -> list[str]:
    """The step and its phases as numbers in the unit of their column, with shares and intervals under them."""
    found = [f"{row.step.text.removesuffix(unit).strip()}\n\n{row.step.interval}".strip()]
    for cell in row.cells:
        if cell.name in shown:
            value = cell.time.text.removesuffix(unit).strip() + cell.star
            under = [] if not cell.time.interval else [cell.share.text, cell.time.interval]
            found.append("\n".join([value, *under]))
    return found


def _list(row: BreakdownRow, shown: list[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row(Text(row.row.name, style="bold"), row.step.text, row.step.interval and f"({row.step.interval})")
    for cell in row.cells:
        if cell.name in shown:
            interval = f"({cell.time.interval}), {cell.share.text}" if cell.time.interval else ""
            table.add_row(f"  {cell.title}{cell.star}", cell.time.text, interval)
    table.add_row("  closure", row.closure, "", style="" if row.closed else "yellow")
    return table


def _notes(row: BreakdownRow, width: int, *, named: bool) -> Text:
    """What is to be said of a trial, each sentence a paragraph; named where the trial is not right above."""
    lines = [f"{row.row.name}: {note}" if named else note for note in [*row.notes, *disagreements(row)]]
    lines += [f"note: {flag}{f' ({row.row.name})' if named else ''}" for flag in row.breakdown.flags]
    found = Text()
    for line in lines:
        style = "dim" if line.startswith("note: ") else ""
        found.append("\n".join(textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="    ")) + "\n", style)
    found.rstrip()
    return found
