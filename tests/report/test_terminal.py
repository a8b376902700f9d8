"""The report in a terminal."""

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console
from summaries import many, quickstart, summary, trial

from steptime.analysis.summary_form import StepTime
from steptime.cli.console import PlainConsole
from steptime.document.number_format import share
from steptime.document.section import Column, Section, SectionTable, TableRow, cells
from steptime.report.sections import StudyFindings, WholeReport
from steptime.report.terminal import SectionText
from steptime.results.json_form import IntervalOverLaunches


def printed(study, width, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    console.print(WholeReport(StudyFindings(study)))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_longer_than_the_terminal(width):
    assert max(len(line) for line in printed(quickstart(), width).splitlines()) <= width


@pytest.mark.parametrize("width", [60, 80, 140])
def test_nothing_is_cut_off(width):
    assert "…" not in printed(many(), width)


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("number", ["36190", "35460 to 36910", "3.47 to 3.61", "1.15 to 1.22", "80.5 to 85.5"])
def test_every_width_has_every_number_with_its_interval_unbroken(width, number):
    assert number in printed(quickstart(), width)


def test_a_wide_terminal_has_one_line_per_trial():
    assert re.search(
        r"2 +mxnet ps_sync +30530 \(29920 to 31140\) .* 1\.19x \(1\.15 to 1\.22\)", printed(quickstart(), 140)
    )


def test_a_bare_number_in_a_list_says_what_it_counts(capsys):
    rows = [TableRow("2", cells("12.3 ms (12.1 to 12.6)"))]
    table = SectionTable([Column("step time of all workers")], rows, "workers", ("wide", "stacked"))
    PlainConsole(width=30).print(SectionText([Section("t", [table])]))

    assert "workers: 2" in capsys.readouterr().out.splitlines()


def test_an_efficiency_above_300_percent_is_a_factor():
    trial = next(each for each in quickstart().trials if each.efficiency.value and each.workers == 2)
    high = trial.efficiency.model_copy(update={"value": 10.02, "low": 9.98, "high": 10.05})

    assert share(trial.model_copy(update={"efficiency": high})).line == "10.02x (9.98 to 10.05)"


def test_a_file_gets_no_colours():
    assert "\x1b" not in printed(quickstart(), 140)


def test_a_tie_is_marked_without_colours():
    assert "1= mxnet single" in printed(quickstart(), 60)


@pytest.mark.parametrize(
    "words",
    [
        "failed: mxnet ps_sync, resnet50, 2 workers: worker-1: RuntimeError",
        "not equivalent: chainer allreduce, resnet50, 2 workers: the weights of worker 1 are 0.34 away",
        "chainer ps_sync: chainer has no parameter servers",
        "trials/x/records.jsonl, line 4 is damaged",
        "note: more workers than cores (all)",
        "note: noisy: CPU used by other processes above 0.1 core (1 of 3 launches) (mxnet ps_sync)",
        "Equivalence check: 6 of 7 checks passed",
        "not passed: chainer allreduce, resnet50, 2 workers: the weights of worker 1",
        "cannot be distinguished at this budget",
        "Intel(R) Xeon(R) Gold 6230",
    ],
)
def test_the_race_says(words):
    assert words in printed(quickstart(), 200)


def test_a_reason_that_holds_back_many_trials_is_said_once_and_none_has_failed_for_want_of_budget():
    reason = "not run: the budget was spent before its first launch"
    left_out = [trial(name, status="failed", reason=reason) for name in ("pytorch", "mxnet")]
    text = printed(summary(left_out), 200)
    assert f"2 trials: {reason}: pytorch" in text
    assert (text.count(reason), "failed" in text) == (1, False)


def test_a_study_without_a_gate_says_that_nothing_was_checked():
    assert "The equivalence check was not run" in printed(summary([trial()]), 80)


def test_a_study_without_results_says_so():
    assert "No trial has a result yet" in printed(summary(), 80)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_unknown_numbers_are_dashes_and_never_zero(width):
    unknown = trial(step_time_s=StepTime(), throughput_samples_per_s=IntervalOverLaunches(value=5.0))
    text = printed(summary([unknown, trial("mxnet", "ps_sync", rate=4.0)]), width)

    assert re.search(r"step time -|(^| )- ", text)
    assert not re.search(r"(^|\s)0 (s|ms|µs)\b", text)


def test_square_brackets_in_a_name_are_text_and_not_style():
    study = summary([trial(varied_options={"note": "[red]hot[/red]"})])

    assert "note=[red]hot[/red]" in printed(study, 140)


def test_the_terminal_report_needs_neither_the_page_nor_its_charts():
    program = "import sys, steptime.report.terminal; print({'vl_convert', 'jinja2'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "set()"


def test_a_measured_trial_without_a_rank_says_why_and_how_fast_it_was():
    reason = "compression: fp16 changes what is computed"
    lossy = trial("pytorch", "allreduce", "lenet5", rate=1234.0, status="unranked", reason=reason)
    text = printed(summary([lossy]), 300)
    assert f"unranked: pytorch allreduce, lenet5, 2 workers: {reason}; 1234" in text
