"""What is shown of trials whose updates could be stale."""

import io

from rich.console import Console
from summaries import place, summary, trial

from steptime.analysis.summary_form import Staleness, Summary
from steptime.document.charts.chart import Marks
from steptime.document.section import TableRow
from steptime.report.groups import ranked_groups
from steptime.report.learning.speed import learning_section
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings, WholeReport
from steptime.report.trial_names import Names
from steptime.results.json_form import Interval

STALE = Staleness(mean=1.25, low=1.1, high=1.4, median=1, p95=3, max=7, updates={"0": 5, "1": 80, "3": 14, "7": 1})


def race() -> Summary:
    """An asynchronous trial that is fast but learns less than a synchronous one."""
    fast = trial(
        "mxnet", "ps_async", rate=2000.0, staleness=STALE, loss_rate_per_s=Interval(value=0.2, low=0.1, high=0.3)
    )
    slow = trial("pytorch", "allreduce", rate=1000.0, loss_rate_per_s=Interval(value=0.6, low=0.5, high=0.7))
    return summary([fast, slow], [place(fast, 1), place(slow, 2, 2.0)])


def rows_of(found: Summary) -> list[TableRow]:
    section = learning_section(ranked_groups(found, Names(found.trials)), Marks([]))
    (group,) = section.parts
    return group.parts[0].rows


def test_what_learns_most_per_second_comes_first_however_fast_the_others_are() -> None:
    assert [row.name for row in rows_of(race())] == ["pytorch allreduce", "mxnet ps_async"]


def test_a_synchronous_trial_is_never_stale_and_says_so() -> None:
    synchronous, asynchronous = rows_of(race())

    assert "never stale" in synchronous.sentence
    assert "staleness 1.25 (1.10 to 1.40), median 1, 95 % at most 3, largest 7" in asynchronous.sentence


def test_a_study_without_asynchronous_trials_has_no_such_part() -> None:
    alone = trial()
    found = summary([alone], [place(alone, 1)])

    assert learning_section(ranked_groups(found, Names(found.trials)), Marks([])) is None
    assert 'id="learning"' not in page_text(StudyFindings(found), "results")


def test_the_page_and_the_terminal_show_the_loss_rate_beside_throughput() -> None:
    console = Console(width=200, file=io.StringIO())
    console.print(WholeReport(StudyFindings(race())))

    assert "loss rate 0.600 (0.500 to 0.700) loss/s" in console.file.getvalue()
    assert 'id="learning"' in page_text(StudyFindings(race()), "results")
