"""Printing lists of things: a table for people, a list of objects for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST_WORD = 16
"""Longer ones, such as paths, are broken where the window is narrow."""

_ANY_WIDTH = 10_000


def print_json(data: object) -> None:
    """Write ``data`` as JSON to standard output, and nothing else."""
    sys.stdout.write(json.dumps(data, indent=1, default=str) + "\n")


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> None:
    """Print ``rows`` with the columns ``{key: title}``; JSON has all keys of each row."""
    if as_json:
        print_json(list(rows))
        return
    from steptime.cli.console import PlainConsole

    console = PlainConsole()
    cells = [[_cell(row.get(key)) for key in columns] for row in rows]
    for longest_word, folds_names in ((_LONGEST_WORD, False), (0, True)):
        table = _table(list(columns.values()), cells, longest_word, folds_names=folds_names)
        if console.measure(table, options=console.options.update(width=_ANY_WIDTH)).minimum <= console.width:
            break
    console.print(table)


def _table(titles: Sequence[str], cells: Sequence[Sequence[str]], longest_word: int, *, folds_names: bool) -> "Table":
    """Return a table in which words of ``cells`` up to a length stay whole, and the first column unless it folds."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(titles):
        # The first column names the row, and is what one copies; the others give way.
        words = [len(word) for line in cells for word in line[number].split()]
        whole = [*map(len, title.split()), *(length for length in words if length <= longest_word)]
        table.add_column(
            title, overflow="fold", no_wrap=number == 0 and not folds_names, min_width=max(whole, default=0)
        )
    for line in cells:
        table.add_row(*line)
    return table


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
