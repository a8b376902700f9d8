"""The table of sections is the only list of them: a row of it is in the terminal's report and on the page."""

import io
import re
from html import unescape

import pytest
from summaries import check, quickstart, summary, trial

from steptime.cli.console import PlainConsole
from steptime.document.charts.chart import Figure
from steptime.document.section import Column, Figures, Pairs, Section, SectionTable, Sentences, TableRow, cells
from steptime.report import sections as table
from steptime.report.equivalence import passed_checks
from steptime.report.overview import overview
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings, WholeReport
from steptime.report.terminal import SectionText
from steptime.runner.admission import NOT_CHECKED, NOT_RUN

PLANTED = Section(
    "A planted section",
    [
        SectionTable([Column("time\ntaken", unit="ms")], [TableRow("a row", cells(("12 ms", "11 to 13")))], "names"),
        SectionTable(
            [Column("size")], [TableRow("another", cells("7"), rank="1=")], "others", layouts=("plain", "stacked")
        ),
        Pairs([("a name", "its meaning")]),
        Sentences(["It is planted."]),
        Section("A part of it", [Sentences(["deeper"], listed=True)]),
        Figures(lambda: [Figure("A picture", "")]),
    ],
    note="What its numbers are.",
    id="planted",
)


def printed(renderable, width=200):
    console = PlainConsole(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()


def words(text):
    """Return a page's text or a terminal's, with one space between two words."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.setattr(table, "SECTIONS", (*table.SECTIONS, lambda _: PLANTED))


SHOWN = [
    "A planted section",
    "What its numbers are.",
    "a row",
    "12 ms",
    "11 to 13",
    "another",
    "1=",
    "its meaning",
    "It is planted.",
    "A part of it",
    "deeper",
]


@pytest.mark.parametrize("width", [20, 200])
def test_a_section_that_is_added_to_the_table_is_in_the_terminals_report(planted, width):
    report = words(printed(WholeReport(StudyFindings(quickstart())), width))
    assert [text for text in SHOWN if text not in report] == []


def test_a_section_that_is_added_to_the_table_is_on_the_page_below_its_title(planted):
    page = page_text(StudyFindings(quickstart(), study_text="version: 1\n"), "results")
    assert [text for text in (*SHOWN, "A picture") if text not in words(page)] == []
    assert "<h2>A planted section</h2></summary>" in page


def test_a_section_that_shows_nothing_is_left_out():
    assert printed(SectionText([Section("Empty", [Section("within", [])])])).strip() == ""


def test_both_reports_word_a_missing_equivalence_check_alike():
    unchecked = summary([trial()])
    short, whole = (words(printed(each)) for each in (overview(unchecked), WholeReport(StudyFindings(unchecked))))
    sentence = "The equivalence check was not run: these trials may train different things."
    assert sentence in short
    assert sentence in whole


@pytest.mark.parametrize("reason", [NOT_RUN, NOT_CHECKED, "not run yet"])
def test_trials_that_were_never_launched_may_not_train_different_things(reason):
    left_out = summary([trial(rate=None, status="failed", reason=reason)])
    short, whole = (words(printed(each)) for each in (overview(left_out), WholeReport(StudyFindings(left_out))))
    sentence = "No equivalence check has ended, and no trial was launched."
    assert sentence in short
    assert sentence in whole
    assert "different things" not in short + whole


def test_tables_that_are_alike_have_the_layout_in_which_all_of_them_fit():
    columns = [Column("time")]
    short, long = (
        SectionTable(columns, [TableRow("a", cells((text, "1 to 2")))], layouts=("wide", "stacked"))
        for text in ("1", "1" * 40)
    )
    text = printed(SectionText([Section("Both", [short, long], alike=True)]), 60)
    assert "1 (1 to 2)" not in text
    assert "1 (1 to 2)" in printed(SectionText([Section("Both", [short, long])]), 60)


MADE = "2026-11-27T21:00:00+00:00"
BEFORE = "2026-11-20T09:00:00+00:00"


@pytest.mark.parametrize(
    ("checks", "sentence"),
    [
        ([check()], "1 of 1 check passed"),
        ([check(checked_at=MADE)], "1 of 1 check passed"),
        ([check(checked_at=MADE, kept=True)], "1 of 1 check passed (1 checked on 2026-11-27, kept)"),
        (
            [check(checked_at=MADE), check("mxnet", checked_at=MADE, kept=True), check("chainer", passed=False)],
            "2 of 3 checks passed (1 checked on 2026-11-27, kept)",
        ),
        (
            [check(checked_at=MADE, kept=True), check("mxnet", checked_at=BEFORE, kept=True)],
            "2 of 2 checks passed (2 checked on 2026-11-20 to 2026-11-27, kept)",
        ),
    ],
)
def test_a_report_states_when_kept_checks_were_made(checks, sentence):
    assert passed_checks(checks) == f"Equivalence check: {sentence}"
    assert sentence in words(printed(overview(summary([trial()], equivalence=checks))))


def test_a_page_states_the_day_of_each_check_that_is_known():
    checks = [check(checked_at=MADE), check("mxnet", checked_at=BEFORE, kept=True), check("chainer")]
    page = page_text(StudyFindings(summary([trial()], equivalence=checks), study_text="version: 1\n"), "results")
    found = set(re.findall(r"checked on ([^<]*)</", page))
    assert {"2026-11-27", "2026-11-20, kept"} <= found
    assert "2026-11-27, kept" not in found


def test_a_page_states_what_all_checks_share_once():
    checks = [check(name, checked_at=MADE, learning_rate=0.01, rounds=6) for name in ("pytorch", "mxnet")]
    page = page_text(StudyFindings(summary([trial()], equivalence=checks), study_text="version: 1\n"), "results")

    assert page.count("checked on 2026-11-27") == page.count("learning rate 0.01") == 1
    assert "All were checked on 2026-11-27, with learning rate 0.01." in page
    assert page.count("3 times, 6 rounds") == len(checks)
