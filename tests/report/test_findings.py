"""Findings on the page: what noise leaves undecided is folded, and counted."""

import pytest
from summaries import summary, trial

from steptime.diagnosis.form import Diagnosis, RuleRecord, TrialFinding, Unsettled
from steptime.document.number_format import predicted_gain
from steptime.report.advice import advice_section, finding_sentence
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings
from steptime.report.trial_names import Names
from steptime.results.json_form import Interval

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


GAINS = {
    "sure": ((1.24, 1.2, 1.29), "predicted gain 1.24x (1.20 to 1.29)"),
    "perhaps none": ((1.1, 0.79, 1.58), "may be no gain: predicted 1.10x (0.79 to 1.58)"),
    "just none": ((1.1, 1.0, 1.2), "may be no gain: predicted 1.10x (1.00 to 1.20)"),
    "undecided": ((2.74, 0.9, 8.3), "predicted gain anywhere from 0.900x to 8.30x"),
    "a loss": ((0.8, 0.7, 0.9), "predicted gain 0.800x (0.700 to 0.900)"),
    "without an interval": ((1.1, None, None), "predicted gain 1.10x (no interval)"),
}


@pytest.mark.parametrize("case", GAINS)
def test_a_gain_whose_interval_holds_1_is_no_promise(case):
    bounds, words = GAINS[case]
    assert predicted_gain(*bounds) == words


def finding(low, high):
    record = RuleRecord(verified=0, shown=0, sign_right=0, inside=0, inside_unwidened=0, median_error=None)
    gain = Interval((low * high) ** 0.5, low, high)
    return TrialFinding(
        rule="small_batch",
        trial=trial().id,
        claim="batches are small",
        evidence=[],
        gain=gain,
        rule_gain=gain,
        change="double the batch",
        overrides=["batch_per_worker=128"],
        disproof="as long a step",
        record=record,
    )


def test_a_finding_without_a_sure_gain_says_so():
    assert "[batch_per_worker=128]; may be no gain: predicted" in finding_sentence(finding(0.79, 1.58), "lenet5")


def alike(*trials, bounds=((0.79, 1.58), (0.80, 1.60))):
    """The rows of the page's table of findings that a rule has of several trials."""
    measured = summary([trial(name, id=name) for name in trials])
    found = [finding(*gain).model_copy(update={"trial": name}) for name, gain in zip(trials, bounds, strict=True)]
    _, table = advice_section(measured, Diagnosis(findings=found), Names(measured.trials)).parts[:2]
    return table.rows


def test_trials_of_which_a_rule_finds_the_same_share_a_row():
    (row,) = alike("mxnet", "pytorch")

    assert [row.name, *row.under] == ["mxnet allreduce, lenet5, 2 workers", "pytorch allreduce, lenet5, 2 workers"]
    assert (row.cells[2].text, row.cells[2].interval) == ("1.12x to 1.13x", "0.79 to 1.60")


@pytest.mark.parametrize("bounds", [((0.79, 1.58), (1.2, 1.3)), ((0.3, 1.58), (0.3, 1.58)), ((0.5, 1.01), (0.9, 2.5))])
def test_trials_of_unlike_or_undecided_gains_have_rows_of_their_own(bounds):
    assert len(alike("mxnet", "pytorch", bounds=bounds)) == 2


def test_a_rule_that_is_undecided_of_several_trials_is_stated_once():
    measured = summary([trial(name, id=name) for name in ("mxnet", "pytorch")])
    doubts = [Unsettled(rule="update_bound", trial=each.id, reason=REASON) for each in measured.trials]
    (line,) = advice_section(measured, Diagnosis(unsettled=doubts), Names(measured.trials)).parts[-1].parts[0].texts

    assert line == (
        "update_bound, update, not shown to be above 10 %. mxnet allreduce, lenet5, 2 workers: 13 % (7 % to 19 %); "
        "pytorch allreduce, lenet5, 2 workers: 13 % (7 % to 19 %)."
    )


def test_the_column_of_gains_says_of_which_there_may_be_none():
    measured = summary([trial()])
    found = Diagnosis(findings=[finding(0.79, 1.58), finding(1.2, 1.3)])
    table = advice_section(measured, found, Names(measured.trials)).parts[0]
    assert [row.cells[2].note for row in table.rows] == ["may be no gain", ""]
