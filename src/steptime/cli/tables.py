"""Printing lists of things: a table for people, a list of objects for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from steptime.cli.streams import say

_LONGEST_WORD = 16
"""Longer ones, such as paths, are broken where the window is narrow."""

_GAP = 3
"""Characters between two columns."""


def print_json(data: object) -> None:
    """Write ``data`` as JSON to standard output, and nothing else."""
    from steptime.measurements.jsonlines import json_text

    say(json_text(data, indent=1, default=str))


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> None:
    """Print ``rows`` with the columns ``{key: title}``; JSON has all keys of each row."""
    if as_json:
        print_json(list(rows))
        return
    from rich import box
    from rich.table import Table

    from steptime.cli.console import PlainConsole

    console = PlainConsole()
    cells = [[_cell(row.get(key)) for key in columns] for row in rows]
    titles = list(columns.values())
    for longest_word, folds_names in ((_LONGEST_WORD, False), (0, False), (0, True)):
        widths = _least_widths(titles, cells, longest_word, folds_names=folds_names)
        if sum(widths) + _GAP * len(widths) <= console.width:
            break
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, (title, width) in enumerate(zip(titles, widths, strict=True)):
        table.add_column(title, overflow="fold", no_wrap=number == 0 and not folds_names, min_width=width)
    for line in cells:
        table.add_row(*line)
    console.print(table)


def _least_widths(
    titles: Sequence[str], cells: Sequence[Sequence[str]], longest_word: int, *, folds_names: bool
) -> list[int]:
    """Return the width of each column in which words of its cells up to a length stay whole.

    The first column names the row, and is what one copies: it stays whole unless ``folds_names``.
    """
    names = [] if folds_names else [len(line[0]) for line in cells]
    found = []
    for number, title in enumerate(titles):
        words = [len(word) for line in cells for word in line[number].split()]
        whole = [*map(len, title.split()), *(length for length in words if length <= longest_word)]
        found.append(max([*whole, *(names if number == 0 else [])], default=0))
    return found


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
