"""Findings on the page: what noise leaves undecided is folded, and counted."""

import pytest
from summaries import summary, trial

from steptime.diagnosis.form import Diagnosis, Unsettled
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings

REASON = "update: 13 % (7 % to 19 %), not shown to be above 10 %"


@pytest.fixture(scope="module")
def page():
    measured = trial()
    doubts = [Unsettled(rule=rule, trial=measured.id, reason=REASON) for rule in ("update_bound", "small_batch")]
    return page_text(StudyFindings(summary([measured]), diagnosis=Diagnosis(unsettled=doubts)), "results")


def test_undecided_rules_are_counted_in_the_line_that_unfolds_them(page):
    assert "<summary>2 rules that noise leaves undecided</summary>" in page


def test_undecided_rules_follow_that_line_with_their_reasons(page):
    assert page.index("noise leaves undecided") < page.index(REASON)


def test_nothing_is_folded_where_every_rule_is_decided():
    page = page_text(StudyFindings(summary([trial()]), diagnosis=Diagnosis()), "results")

    assert "leaves undecided" not in page
