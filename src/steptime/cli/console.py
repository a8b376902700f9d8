"""The consoles of all verbs: text is shown as it is, never parsed as markup, and obeyed by no terminal.

Printing lists of things: a table for people, a list of objects for programs.

Reading options that are more than one word, and collecting all mistakes before any is told.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from steptime.cli.streams import say
from steptime.errors import UsageError
from steptime.report.number_format import plain_text

if TYPE_CHECKING:
    from steptime.measurements.store import Store


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


def open_results(folder: Path) -> "Store":
    """Open a results folder, and warn where another user could have changed it.

    Raises StoreError where it is none, or cannot be read.
    """
    from steptime.cli.streams import warn
    from steptime.foreign_writers import foreign_hand_on
    from steptime.measurements.store import Store

    store = Store.open(folder)
    if said := foreign_hand_on(folder):
        warn([f"note: {said}, who could have changed these results"])
    return store


Value = TypeVar("Value")


class Mistakes:
    """What was wrong in the options that were read so far."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def read(self, option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        """Return the parsed text; None if none was given, or where it was wrong."""
        if text is None:
            return None
        try:
            return parse(text)
        except UsageError as error:
            self._found += error.mistakes
        except ValueError as error:
            self._found.append(f"{option}: {error}")
        return None

    def each(self, option: str, text: str, parse: Callable[[str], Value]) -> list[Value]:
        """Return the parsed parts of a text that commas separate; those that were wrong are left out."""
        found = [self.read(option, part.strip(), parse) for part in text.split(",") if part.strip()]
        return [value for value in found if value is not None]

    def add(self, mistakes: list[str]) -> None:
        """Remember mistakes that were found elsewhere."""
        self._found += mistakes

    def complain(self) -> None:
        """Raise UsageError if anything was wrong."""
        if self._found:
            raise UsageError(self._found)


def count(text: str) -> int:
    """Return a number of things; raises ValueError for what is none."""
    if not text.isdecimal():
        message = f"{text!r} is not a whole number"
        raise ValueError(message)
    return int(text)
