"""Tables of a terminal of which no cell is broken."""

from collections.abc import Sequence

_GAP = 2
"""Columns of the terminal between two columns of a table."""


def print_columns(title: str, keys: Sequence[str], titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of which no cell is broken: columns that the terminal is too narrow for follow in another table.

    Args:
        title: above the first table.
        keys: titles of the columns that name a row, which are in every table.
        titles: of the other columns.
        rows: cells of all columns; a row may end early.
    """
    from rich import box
    from rich.table import Table

    from steptime.cli.console import PlainConsole

    console = PlainConsole()
    headers = [*keys, *titles]
    widths = [
        max([len(header), *(len(row[column]) for row in rows if column < len(row))])
        for column, header in enumerate(headers)
    ]
    for number, columns in enumerate(_fitting(widths, len(keys), console.width)):
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 0, 0, 1),
            title=None if number else title,
            title_justify="left",
            title_style="bold",
        )
        for column in columns:
            justify = "left" if headers[column] == "dominant" else "right"
            table.add_column(headers[column], justify=justify, no_wrap=True, overflow="fold")  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*(row[column] if column < len(row) else "" for column in columns))
        console.print(table)


def _fitting(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Return the columns of each table: those that name a row, and as many further ones as fit beside them."""
    own = list(range(keys))
    tables: list[list[int]] = []
    for column in range(keys, len(widths)):
        last = [*tables[-1], column] if tables else []
        if last and sum(widths[each] for each in last) + _GAP * len(last) <= room:
            tables[-1] = last
        else:
            tables.append([*own, column])
    return tables
