"""The glossary has the headings of all tables of reports."""

import ast
import re
from pathlib import Path

import pytest

from steptime.phases import PHASES

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def headings():
    """Return the headings of columns that are the same in all reports, from the sources that build tables."""
    for path in sorted((ROOT / "src" / "steptime" / "report").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if "Column(" in text else ():
            column = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Column"
            if column and call.args and isinstance(call.args[0], ast.Constant):
                yield " ".join(call.args[0].value.split())


HEADINGS = sorted(
    {*headings(), "scaling efficiency", *(phase.title.replace("exposed comm.", "exposed") for phase in PHASES)}
)


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_heading_of_a_report_is_in_the_glossary(heading):
    _, _, listed = re.sub(r"[*()]", "", GLOSSARY).partition("## Headings of reports")
    assert re.sub(r"[()]", "", heading).partition(" measured")[0] in listed


def test_there_are_headings():
    assert len(HEADINGS) > 60
