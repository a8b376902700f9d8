"""Nothing of a report is cut on a narrow terminal: every letter of a cell is somewhere, in whichever layout."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_studies import STUDIES, output_of, unpacked

from steptime.cli.console import PlainConsole
from steptime.cli.reported_results import read_report
from steptime.document.section import Part, Section, SectionTable, text_table
from steptime.report.terminal import SectionText

WIDTHS = (60, 80, 120)


@pytest.fixture(scope="module", params=STUDIES)
def folder(request, tmp_path_factory):
    return unpacked(request.param, tmp_path_factory.mktemp("stored"))


@pytest.fixture(scope="module")
def tables(folder: Path) -> list[SectionTable]:
    """Every table of the report that a terminal shows."""
    return [table for section in read_report(folder).sections for table in tables_of(section)]


def tables_of(part: Part) -> Iterator[SectionTable]:
    if isinstance(part, SectionTable) and part.rows and part.is_within("terminal"):
        yield part
    elif isinstance(part, Section):
        for below in part.within("terminal"):
            yield from tables_of(below)


def letters(texts: list[str]) -> Counter[str]:
    return Counter(re.sub(r"[\s─]", "", "".join(texts)))


def shown_cells(table: SectionTable) -> list[str]:
    """Return the names and the texts of cells that every layout of a table shows, without units that headings have."""
    places = [{index for index, _ in table.columns_of(layout)} for layout in (*table.layouts, "list")]
    columns = [(index, table.columns[index]) for index in set.intersection(*places)]
    return [
        *(row.name for row in table.rows),
        *(row.cells[index].text.replace(column.unit or " ", "") for row in table.rows for index, column in columns),
        *(row.cells[index].interval for row in table.rows for index, _ in columns),
    ]


def printed(table: SectionTable, width: int, capsys) -> str:
    PlainConsole(width=width).print(SectionText([Section("Title", [table])]))
    return capsys.readouterr().out


@pytest.mark.sampled("options", "width")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("options", [[], ["--all"]], ids=["short", "all"])
def test_no_line_of_a_report_is_cut_or_wider_than_the_terminal(folder, options, width):
    """But for the commands that go on from it, which are there to be copied."""
    text, _, _ = output_of("report", str(folder), *options, columns=width).partition("\nNext:")
    assert [line for line in text.splitlines() if "…" in line or len(line) > width] == []


@pytest.mark.sampled("width")
@pytest.mark.parametrize("width", WIDTHS)
def test_every_letter_of_every_table_of_a_report_is_shown(tables, width, capsys):
    laid_out = [table for table in tables if table.layouts]
    lost = [letters(shown_cells(table)) - letters([printed(table, width, capsys)]) for table in laid_out]
    assert [each for each in lost if each] == []


SHAPES = {
    "two columns that may be broken": (["name", "what", "why"], [["a b", "word " * 20, "other " * 30]]),
    "a name without a space": (["name", "what"], [["x" * 90, "1.5 ms"]]),
    "a cell without a space": (["name", "what"], [["a", "y" * 150]]),
    "long titles": (["name", "operations", "launches of it"], [["a", "allreduce, incast " * 5, "3"]]),
    "many columns": (["name", *["column"] * 14], [["a", *["12.3 ms (12.1 to 12.6)"] * 14]]),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["number", "text", "prose"])
@pytest.mark.parametrize("layouts", [("wide", "stacked"), ("wide", "split"), ("stacked",), ("wide",)], ids="-".join)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_letter_of_a_table_is_shown_in_every_layout(shape, layouts, kind, width, capsys):
    titles, rows = SHAPES[shape]
    text = printed(text_table(titles, rows, "", kind, layouts), width, capsys)

    assert max(map(len, text.splitlines())) <= width
    assert not letters([*titles[1:], *rows[0]]) - letters([text])
