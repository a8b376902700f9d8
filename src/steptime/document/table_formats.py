"""Sections in the forms of other programs: Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Iterable, Iterator

from steptime.document.section import Column, Section, SectionTable, TableRow

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "µ": r"\textmu{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def csv_of(sections: Iterable[Section]) -> str:
    """Return every number of the tables: a row for each cell, with its section, table, row, column and interval."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["section", "table", "row", "column", "value", "interval", "note"])
    for section in sections:
        for title, table in _tables(section):
            for row, column, index in _cells(table):
                cell = row.cells[index]
                heading = column.title.replace("\n", " ")
                writer.writerow([section.title, title, row.name, heading, cell.text, cell.interval, cell.note])
    return file.getvalue()


def latex_of(sections: Iterable[Section]) -> str:
    """Return the tables for LaTeX with the package booktabs, each with its section as caption."""
    blocks = [
        block for section in sections for title, table in _tables(section) for block in _latex(section, title, table)
    ]
    return "\n".join(["% \\usepackage{booktabs}", *blocks])


def _latex(section: Section, title: str, table: SectionTable) -> Iterator[str]:
    shown = table.columns_of("page")
    kinds = "l" + "".join("r" if column.kind == "number" else "l" for _, column in shown)
    yield "\\begin{table}\n\\centering"
    yield f"\\caption{{{_escaped(': '.join(dict.fromkeys((section.title, title))))}}}"
    yield f"\\begin{{tabular}}{{{kinds}}}\n\\toprule"
    yield _row([table.names, *(column.title.replace("\n", " ") for _, column in shown)])
    yield "\\midrule"
    for row in table.rows:
        yield _row([row.name, *(row.cells[index].line for index, _ in shown)])
    yield "\\bottomrule\n\\end{tabular}\n\\end{table}"


def _row(texts: Iterable[str]) -> str:
    return " & ".join(map(_escaped, texts)) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _tables(section: Section, above: str = "") -> Iterator[tuple[str, SectionTable]]:
    title = f"{above}, {section.title}" if above else section.title
    for part in section.parts:
        if isinstance(part, SectionTable) and part.rows:
            yield title, part
        elif isinstance(part, Section):
            yield from _tables(part, "" if not above else title)


def _cells(table: SectionTable) -> Iterator[tuple[TableRow, Column, int]]:
    for row in table.rows:
        for index, column in table.columns_of("page"):
            yield row, column, index
