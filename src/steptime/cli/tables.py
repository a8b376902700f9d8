"""Printing lists of things: a table for people, a list of objects for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def print_json(data: object) -> None:
    """Write ``data`` as JSON to standard output, and nothing else."""
    sys.stdout.write(json.dumps(data, indent=1, default=str) + "\n")


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> None:
    """Print ``rows`` with the columns ``{key: title}``; JSON has all keys of each row."""
    if as_json:
        print_json(list(rows))
        return
    from rich import box
    from rich.table import Table

    from steptime.cli.console import PlainConsole

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(columns.values()):
        # The first column names the row, and is what one copies; the others give way, but not within a word.
        word = max(map(len, title.split()), default=0)
        table.add_column(title, overflow="fold", no_wrap=number == 0, min_width=word)
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    PlainConsole().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
