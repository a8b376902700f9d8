"""The consoles of all verbs, and their lists: text is shown as it is, never as markup, and obeyed by no terminal."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from steptime.cli.streams import print_json
from steptime.document.paragraph import wrap_text
from steptime.document.plain_text import plain_text


class PlainConsole(Console):
    """A console for text of others: styles come from ``rich.text.Text`` alone, control characters are written out."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of rich's console
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of ``renderable``; only rich itself may move the cursor."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain_text(text), style, control)


def stderr_console() -> PlainConsole:
    """Return the console for everything that is not a result."""
    return PlainConsole(file=sys.stderr)


_FILE_WIDTH = 140
"""Columns where no terminal sets them: a line per trial can be searched and cut."""


def report_console() -> PlainConsole:
    """Return the console for reports: as wide as the terminal, or as a file may be."""
    sized = sys.stdout.isatty() or "COLUMNS" in os.environ
    return PlainConsole(width=None if sized else _FILE_WIDTH)


def print_paragraph(console: Console, text: str, style: str = "") -> None:
    """Print a paragraph of whole words as wide as a terminal; in a file it is one line, for whoever searches it."""
    if console.is_terminal or "COLUMNS" in os.environ:
        indent = text[: len(text) - len(text.lstrip())] + _HANGING
        text = "\n".join(whole_words(text, console.width, indent))
    console.print(Text(text, style=style), soft_wrap=True)


def whole_words(text: str, width: int, indent: str = "") -> list[str]:
    """Return lines of whole words, all but the first with an ``indent``: a broken path or option cannot be copied."""
    width = max(width, _LEAST_WIDTH)
    return wrap_text(text, width, indent=indent, break_long_words=False)


_HANGING = "    "
"""Ahead of all lines of a paragraph but the first."""
_LEAST_WIDTH = 20
"""Columns of the narrowest lines."""
_LONGEST_WORD = 16
"""Longer ones, such as paths, are broken where the window is narrow."""

_GAP = 3
"""Characters between two columns."""


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> None:
    """Print ``rows`` with the columns ``{key: title}``; JSON has all keys of each row."""
    if as_json:
        print_json(list(rows))
        return
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
