"""Text of others: square brackets are no markup, and control characters reach no terminal, page or picture."""

import io
import re
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import steptime
from steptime.cli.console import PlainConsole
from steptime.document.charts.chart import chart, to_svg
from steptime.document.plain_text import plain_text

GLOO = "worker-0: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer"
HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\u202eevil\ud800"


def printed(*renderables, **settings):
    console = PlainConsole(file=io.StringIO(), width=400, **settings)
    for each in renderables:
        console.print(each)
    return console.file.getvalue()


def table_of(text):
    table = Table()
    table.add_column(text)
    table.add_row(text)
    return table


@pytest.mark.parametrize("form", [str, Text, table_of])
@pytest.mark.parametrize("text", [GLOO, "[bold]x[/bold]", "[/]", "[link=http://x]y[/link]", ":skull: {x} %s"])
def test_square_brackets_are_shown_as_they_are(form, text):
    assert text in printed(form(text))


@pytest.mark.parametrize("form", [str, Text, table_of])
def test_no_control_character_reaches_a_terminal(form):
    shown = printed(form(HOSTILE), force_terminal=True, color_system=None)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", shown)
    assert r"\x1b]0;title" in shown


def test_colours_of_steptime_itself_reach_a_terminal():
    shown = printed(Text("fine", style="red"), force_terminal=True, color_system="standard")
    assert shown == "\x1b[31mfine\x1b[0m\n"


def test_letters_of_any_language_tabs_and_line_breaks_stay():
    assert plain_text("µs, 100 %\té\n漢字 🙂") == "µs, 100 %\té\n漢字 🙂"


def test_no_control_character_reaches_a_picture():
    spec = chart([{"mark": "text", "encoding": {"text": {"field": "name"}}}], [{"name": HOSTILE}])
    svg = str(to_svg(spec, HOSTILE))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", svg)
    assert r"\x1b]0;title" in svg


def test_no_other_console_is_made_anywhere():
    """Rich parses square brackets as markup unless each console is told not to."""
    root = Path(steptime.__file__).parent
    made = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"(?<!Plain)\bConsole\(|rich\.markup|from_markup|rich import print", path.read_text("utf-8"))
    }
    assert made <= {"cli/console.py"}
