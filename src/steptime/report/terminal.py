"""Sections in a terminal.

Where the terminal is wide enough a row of a table is one line, with less important columns where these fit too; where
it is narrower, intervals are under their numbers; where even that does not fit, a row is a list.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from steptime.document.paragraph import wrap_text
from steptime.document.section import (
    Cell,
    Column,
    Layout,
    Pairs,
    Part,
    Section,
    SectionTable,
    Sentences,
    Style,
    TableRow,
    Verbatim,
)

_STYLES: dict[Style, str] = {
    "": "",
    "dim": "dim",
    "bold": "bold",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
}
_STACKED: frozenset[Layout | None] = frozenset({"stacked", "packed"})
"""Layouts with intervals below their numbers; the second may have fewer columns."""
_TITLES = ("bold", "bold cyan", "cyan")
"""Styles of a section's title, and of those within it."""
_NAME = 14
"""Letters that a column of names has at least; a name may be broken, a number may not."""
_ENDLESS = 10_000
_BESIDE = 4
"""Letters of a list that are neither a title nor a number: the indent, and the gap between both."""


class SectionText:
    """Sections as text, which fits itself into the width that it is printed with."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = [section for section in sections if section.is_within("terminal")]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for number, section in enumerate(self._sections):
            if number:
                yield Text()
            yield from _section_lines(section, _layouts(section, console, options), console, options)


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
    if layout == "split":
        return all(fits(_grid(table, layout, [each]), console, options) for each in table.columns_of(layout))
    return fits(_grid(table, layout), console, options, broken_names=layout in _STACKED)


def _split(table: SectionTable, console: Console, options: ConsoleOptions) -> Iterator[Table]:
    """Yield tables of the columns that fit beside the names, one after the other."""
    shown: list[tuple[int, Column]] = []
    for each in table.columns_of("split"):
        if shown and not fits(_grid(table, "split", [*shown, each]), console, options):
            yield _grid(table, "split", shown)
            shown = []
        shown.append(each)
    yield _grid(table, "split", shown)


def _tables(section: Section) -> Iterator[SectionTable]:
    for part in section.within("terminal"):
        if isinstance(part, SectionTable):
            yield part
        elif isinstance(part, Section):
            yield from _tables(part)


def _section_lines(
    section: Section,
    layout_of: Callable[[SectionTable], Layout | None],
    console: Console,
    options: ConsoleOptions,
    level: int = 0,
) -> Iterator[RenderableType]:
    yield wrapped(section.title, _STYLES[section.style] if section.style else _TITLES[level], options)
    if section.note:
        yield wrapped(section.note, "dim", options, indent=2)
    for line in section.verdict.splitlines():
        yield wrapped(line, "bold", options)
    for number, part in enumerate(section.within("terminal")):
        if isinstance(part, Section):
            if number or section.note:
                yield Text()
            yield from _section_lines(part, layout_of, console, options, level + 1)
        elif isinstance(part, SectionTable) and part.layouts:
            layout = layout_of(part)
            if layout == "split":
                yield from _split(part, console, options)
            else:
                yield from [narrowed(_grid(part, layout), console, options)] if layout else _lists(part, options)
        elif isinstance(part, Verbatim):
            yield Text(textwrap.indent(part.text, "  "), no_wrap=True, overflow="ignore")
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


def _grid(table: SectionTable, layout: Layout, columns: Sequence[tuple[int, Column]] | None = None) -> Table:
    """Return a table in a layout, with all columns that it has there or with some of them."""
    stacked = layout in _STACKED
    found = empty_table()
    if table.has_ranks:
        found.add_column("#", no_wrap=True)
    names = table.names.replace(", ", ",\n") if stacked else table.names
    least = min(_NAME, widest_line([names, *(row.name for row in table.rows)]))
    found.add_column(names, min_width=least, overflow="fold")
    shown = table.columns_of(layout) if columns is None else columns
    for index, column in shown:
        heading = f"{column.title}\n({column.unit})" if column.unit else column.title
        number = column.kind == "number"
        # A number broken in two is worse than a narrow name: only names give way.
        heading = heading if stacked else heading.replace("\n", " ")
        shown_cells = [_cell(row.cells[index], column, layout) for row in table.rows]
        found.add_column(
            heading,
            justify="right" if number else "left",
            no_wrap=column.kind != "prose",
            overflow="fold" if column.kind == "prose" else "ellipsis",
            min_width=widest_line(shown_cells) if number else None,
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
    return "\n".join(filter(None, (cell.text, cell.interval, cell.note))) if layout in _STACKED else cell.line


def _lists(table: SectionTable, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Yield the name of each row, and below it a line for each of its cells."""
    columns = table.columns_of("list")
    titles = [column.title.replace("\n", " ") for _, column in columns]
    widest = widest_line([row.cells[index].text for row in table.rows for index, _ in columns])
    beside = options.max_width - widest_line(titles) - _BESIDE
    if widest > beside:
        yield from _sentences(table, columns, options)
        return
    for row in table.rows:
        yield wrapped(_name_in_list(table, row), "bold", options)
        found = Table.grid(padding=(0, 1))
        found.add_column()
        found.add_column(justify="right", no_wrap=True, min_width=widest)
        found.add_column(overflow="fold")
        for index, column in columns:
            cell = row.cells[index]
            behind = ", ".join(filter(None, (cell.interval and f"({cell.interval})", cell.note)))
            title = column.title.replace("\n", " ")
            found.add_row(Text(f"  {title}"), Text(cell.text), Text(behind), style=_STYLES[cell.style])
        yield found


def _name_in_list(table: SectionTable, row: TableRow) -> str:
    """Return what a row is called above its cells: a bare number with what it counts."""
    named = f"{table.names}: {row.name}" if row.name[:1].isdigit() else row.name
    return f"{row.rank} {named}".strip()


def _sentences(
    table: SectionTable, columns: Sequence[tuple[int, Column]], options: ConsoleOptions
) -> Iterator[RenderableType]:
    """Yield the name of each row, and below it a paragraph for each of its cells."""
    for row in table.rows:
        yield wrapped(_name_in_list(table, row), "bold", options)
        for index, column in columns:
            title = column.title.replace("\n", " ")
            yield wrapped(f"{title}: {row.cells[index].line}", _STYLES[row.cells[index].style], options, indent=2)


def fits(table: Table, console: Console, options: ConsoleOptions, *, broken_names: bool = False) -> bool:
    """Whether a table fits into the width without breaking anything, or anything but names."""
    widest = Measurement.get(console, options.update(max_width=_ENDLESS), table).maximum
    if not broken_names or widest <= options.max_width:
        return widest <= options.max_width
    return widest - sum(most - least for least, most in _ranges(table, console, options)) <= options.max_width


def _ranges(table: Table, console: Console, options: ConsoleOptions) -> list[tuple[int, int]]:
    """Return the least and the largest width of each column: rich takes a word for the least of one never broken."""
    endless = options.update(max_width=_ENDLESS)
    ranges = []
    for column in table.columns:
        measured = [Measurement.get(console, endless, each) for each in (column.header, *column.cells)]
        most = max([column.min_width or 0, *(each.maximum for each in measured)])
        least = max([column.min_width or 0, *(each.minimum for each in measured)])
        ranges.append((most if column.no_wrap else least, most))
    return ranges


def empty_table() -> Table:
    """Return a table without rows that has a rule below its headings alone."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)


def widest_line(cells: Sequence[str]) -> int:
    """Return the letters of the longest line of all cells."""
    return max((len(line) for cell in cells for line in cell.split("\n")), default=0)


def narrowed(table: Table, console: Console, options: ConsoleOptions) -> Table:
    """Return a table whose columns that may be broken are as narrow as the width needs, none below its longest word.

    rich narrows columns below their least width, and then cuts what is beyond the width.
    """
    widest = Measurement.get(console, options.update(max_width=_ENDLESS), table).maximum
    if widest <= options.max_width:
        return table
    ranges = _ranges(table, console, options)
    widths = [most for _, most in ranges]
    for _ in range(widest - options.max_width):
        able = [number for number, (least, _) in enumerate(ranges) if widths[number] > least]
        if able:
            widths[max(able, key=lambda number: widths[number])] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    return table


def section(
    title: str, title_style: str, lines: Sequence[str], options: ConsoleOptions, style: str = ""
) -> Iterator[RenderableType]:
    """Yield a title and the lines below it, indented."""
    yield wrapped(title, title_style, options)
    for line in lines:
        yield wrapped(line, style, options, indent=2)


def wrapped(line: str, style: str, options: ConsoleOptions, indent: int = 0) -> RenderableType:
    """Return a paragraph without the spaces that rich would put behind each line; they annoy in a file."""
    lines = wrap_text(line, options.max_width, first_indent=" " * indent, indent=" " * (2 * indent))
    return Text("\n".join(lines), style=style)
