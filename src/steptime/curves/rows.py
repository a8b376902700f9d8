"""The rows of a user's CSV, under their columns, with numbers as Python reads them; or what the file is instead.

Spreadsheets and data frames write blank rows, comments, an index without a name, semicolons or tabs, decimal commas and
separated thousands. What has two readings stays as it is written, to be named by its line and column.
"""

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.curves.curve import EvidenceError
from steptime.errors import FileError
from steptime.user_file import read_user_text

Rows = list[tuple[int, dict[str, str]]]
"""Line numbers and values by column."""
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6}
_MOST_BYTES = 4 * 1024**2
_MANY = 20
"""So many mistakes are listed; a table with more has one cause."""
_SHOWN = 60


def read_rows(path: Path, columns: Collection[str], numbers: Collection[str]) -> tuple[list[str], Rows]:
    """Return the names of columns in small letters, and the rows.

    Args:
        path: of the CSV.
        columns: that mean something; each may be there once.
        numbers: those of the columns that hold numbers.

    Raises EvidenceError where the file cannot be read, is not a CSV, or a row has more cells than there are columns.
    """
    table = _read_table(path, columns)
    if table.too_long:
        raise EvidenceError(some_of(table.too_long))
    twice = sorted({column for column in columns if table.header.count(column) > 1})
    if twice:
        message = f"{path}: the table has the columns {', '.join(twice)} more than once; keep one of each"
        raise EvidenceError(message)
    rows = [(line, row) for line, row in table.rows if any(row.values())]
    if not rows and table.header:
        message = f"{path}: the table has no rows; every measured point is one"
        raise EvidenceError(message)
    return table.header, _plain_rows(rows, numbers)


@dataclass(frozen=True)
class _WrittenTable:
    """A CSV as it is written."""

    header: list[str]
    rows: Rows
    too_long: list[str]
    """A mistake for each row that has more cells than there are columns."""


def _read_table(path: Path, columns: Collection[str]) -> _WrittenTable:
    """Return the cells of a file; raises EvidenceError where it cannot be read, or is not a CSV."""
    try:
        text = read_user_text(path, _MOST_BYTES).replace("\r\n", "\n").replace("\r", "\n")
        # Comments become blank lines, so that the numbers of lines stay.
        lines = ["" if line.lstrip().startswith("#") else line for line in text.split("\n")]
        before = next((number for number, line in enumerate(lines) if line.strip()), 0)
        if other := _other_form(lines[before], columns):
            message = f"{path}, line {before + 1}: {other}"
            raise EvidenceError(message)
        delimiter = _delimiter(lines[before])
        reader = csv.DictReader(io.StringIO("\n".join(lines[before:]), newline=""), delimiter=delimiter)
        header = [name.strip().lower().replace(" ", "_") for name in reader.fieldnames or ()]
        reader.fieldnames = header
        table = _WrittenTable(header, [], [])
        for row in reader:
            line = before + reader.line_num
            extra = [cell.strip() for cell in row.pop(None, ())]  # what is beyond the header
            cells = [(value or "").strip() for value in row.values()]
            table.rows.append((line, {key: cell for key, cell in zip(row, cells, strict=True) if key}))
            if any(extra):
                written = delimiter.join([*cells, *extra])
                mistake = _too_many_cells(written, delimiter, len(header), len(extra))
                table.too_long.append(f"{path}, line {line}: {mistake}")
    except (FileError, csv.Error) as error:
        reason = error.reason if isinstance(error, FileError) else error
        message = f"{path}: cannot be read as a CSV table: {reason}"
        raise EvidenceError(message) from error
    return table


def _plain_rows(rows: Rows, numbers: Collection[str]) -> Rows:
    """Return rows with the numbers in the columns ``numbers`` as Python reads them."""
    decimal = _decimal_mark([row.get(column, "") for _, row in rows for column in numbers])
    return [
        (line, {key: _plain(cell, decimal) if key in numbers else cell for key, cell in row.items()})
        for line, row in rows
    ]


def some_of(mistakes: Sequence[str]) -> list[str]:
    """Return the first mistakes of a table, and how many more there are."""
    rest = len(mistakes) - _MANY
    return [*mistakes[:_MANY], *([f"… and {rest} more"] if rest > 0 else [])]


def _other_form(first: str, columns: Collection[str]) -> str:
    """Return what a file is whose first line cannot be the header of a CSV, and the next step; empty for a CSV."""
    write = "write a CSV: a line of column names (workers,step_time_s), and one line for each point"
    if re.match(r"\s*[\[{]", first):
        return f"this is JSON, not a CSV; {write}"
    if re.match(r"\s*<", first):
        return f"this is HTML or XML, not a CSV; {write}"
    if first.count("|") > 1:
        return "this is a table of Markdown, not a CSV; separate columns by commas and remove the line of dashes"
    words = first.lower().split()
    if len(words) > 1 and not re.search("[,;\t]", first) and set(words) & {*columns, "gpus", "nodes", "ranks"}:
        return f"columns are separated by blanks; separate them by commas, as {','.join(words)[:_SHOWN]}"
    return ""


def _too_many_cells(written: str, delimiter: str, columns: int, extra: int) -> str:
    """Return what is wrong with a row that has more cells than there are columns, and what may be meant."""
    name = {",": "commas", ";": "semicolons", "\t": "tabs"}[delimiter]
    sentence = f"{written[:_SHOWN]!r} has {columns + extra} cells under {columns} columns"
    if delimiter == "," and re.search(r"\d,\d", written):
        return (
            f"{sentence}; if a comma is the decimal mark, write a point, or separate columns by semicolons; if it "
            "separates thousands, leave it out"
        )
    return f"{sentence}; give every column a name, and separate cells by as many {name} as in the header"


def _delimiter(header: str) -> str:
    """Return what separates columns: of comma, semicolon and tab the one that is in the header most often."""
    return max(",;\t", key=header.count)


def _decimal_mark(cells: Sequence[str]) -> str | None:
    """Return the decimal mark that numbers of a table show; None if they show none, or both.

    A number with both marks shows it, and one with a mark that cannot separate thousands.
    """
    shown = set()
    for cell in cells:
        for decimal, other in (".,", ",."):
            whole = rf"\d{{1,3}}(?:\{other}\d{{3}})+"
            many = rf"\d{{1,3}}(?:\{other}\d{{3}}){{2,}}"
            ending = rf"\d+\{decimal}(?!\d{{3}}$)\d+|\d{{4,}}\{decimal}\d+|0\{decimal}\d+"
            if re.fullmatch(rf"{whole}\{decimal}\d+|{many}|{ending}", cell):
                shown.add(decimal)
    return shown.pop() if len(shown) == 1 else None


def _plain(cell: str, decimal: str | None) -> str:
    """Return a number as Python reads it; what is ambiguous stays, to be named.

    Without a decimal mark that the table shows, ``2,380`` may be 2380 or 2.38.
    """
    text = re.sub(r"(?<=\d)[ \u00a0\u202f'_](?=\d{3})", "", cell)
    if decimal == ",":
        text = text.replace(".", "").replace(",", ".")
    elif decimal == "." and re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    if scaled := re.fullmatch(r"(\d+(?:\.\d+)?)([kKM])", text):
        return f"{float(scaled[1]) * _SCALES[scaled[2]]:.15g}"
    return re.sub(r"^(\d+)\.0+$", r"\1", text)
