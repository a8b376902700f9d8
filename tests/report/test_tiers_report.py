"""Tiers and marks as a reader sees them: names of rows, the race in each tier, what tuned changed, and the sentence."""

import pytest
from rich.console import Console
from summaries import trial

from steptime.analysis.summary_form import OptionChange, RankedTrial, Summary, TunedTrial
from steptime.report.groups import ranked_groups, verdict
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings, WholeReport
from steptime.report.tiers import tier_section
from steptime.report.trial_names import Names
from steptime.results.json_form import IntervalOverLaunches

MPI = "steptime's exchange over MPI"


def place(trial, rank, ratio, group=None, *, tied=False):
    value = IntervalOverLaunches(value=ratio, low=ratio * 0.98, high=ratio * 1.02)
    return RankedTrial(
        group=group or trial.group,
        rank=rank,
        trial=trial.id,
        ratio_to_best=value,
        tied_with_best=tied or rank == 1,
        launches_to_settle=None,
    )


def summary_of(trials, ranking, **more):
    fields = {"study": "race", "question": "", "machine": {}, "equivalence": [], "skipped": [], "problems": []}
    return Summary(trials=trials, ranking=ranking, **{**fields, **more})


@pytest.fixture
def raced():
    """PyTorch in both tiers, and Chainer, for which the tier changes nothing."""
    documented = trial("pytorch", rate=1000.0, id="documented")
    tuned = trial("pytorch", rate=1250.0, id="tuned", tuning="tuned", tiers=("tuned",))
    same = trial("chainer", rate=1100.0, id="same", tiers=("documented", "tuned"))
    return summary_of(
        [documented, tuned, same],
        [place(tuned, 1, 1.0), place(same, 2, 1.14), place(documented, 3, 1.25)],
        tier_ranking={
            "documented": [place(same, 1, 1.0), place(documented, 2, 1.1)],
            "tuned": [place(tuned, 1, 1.0), place(same, 2, 1.14)],
        },
        tuned=[
            TunedTrial(
                group=tuned.group,
                trial="tuned",
                documented_trial="documented",
                changed={"compile": OptionChange(documented=False, tuned=True)},
                speedup=IntervalOverLaunches(value=1.25, low=1.2, high=1.3),
            )
        ],
    )


def parts_of(summary):
    (group,) = tier_section(summary, Names(summary.trials)).parts
    return group.parts


def printed(summary, width=120):
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(WholeReport(StudyFindings(summary)))
    return " ".join(captured.get().split())


def test_a_row_of_a_study_of_both_tiers_says_its_tier(raced):
    names = Names(raced.trials)
    assert [names.short(each) for each in raced.trials] == [
        "pytorch allreduce documented",
        "pytorch allreduce tuned",
        "chainer allreduce documented=tuned",
    ]


def test_a_study_of_the_documented_tier_alone_names_no_tier():
    only = trial("pytorch")
    assert Names([only]).short(only) == "pytorch allreduce"


def test_the_order_of_the_race_is_told_in_each_tier(raced):
    orders, _, _ = parts_of(raced)
    assert orders.pairs == [
        ("documented", "1 chainer allreduce, 2 pytorch allreduce 1.10x"),
        ("tuned", "1 pytorch allreduce, 2 chainer allreduce 1.14x"),
    ]


def test_what_tuned_changed_is_told_by_option_and_value_with_the_gain_and_its_interval(raced):
    (row,) = parts_of(raced)[1].rows
    assert row.sentence == (
        "pytorch allreduce: 1.25x (1.20 to 1.30) as fast as documented, by compile=true (documented false)"
    )


def test_a_gain_whose_interval_holds_1_shows_no_difference(raced):
    raced.tuned[0] = raced.tuned[0].model_copy(update={"speedup": IntervalOverLaunches(value=0.9, low=0.7, high=1.2)})
    (row,) = parts_of(raced)[1].rows
    assert "0.900x (0.700 to 1.200) as fast as documented, which shows no difference, by compile=true" in row.sentence


def test_a_gain_that_was_not_measured_is_told_as_such(raced):
    raced.tuned[0] = raced.tuned[0].model_copy(update={"speedup": None})
    (row,) = parts_of(raced)[1].rows
    assert row.sentence == ("pytorch allreduce: not measured in both tiers; tuned has compile=true (documented false)")


def test_frameworks_for_which_tuned_changes_nothing_are_named(raced):
    assert parts_of(raced)[-1].texts == ["Tuned changes nothing for chainer allreduce."]


def test_a_study_of_one_tier_has_no_part_about_tiers():
    only = trial("pytorch")
    summary = summary_of([only], [place(only, 1, 1.0)])
    assert tier_section(summary, Names(summary.trials)) is None


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_terminal_tells_both_orders_and_the_change(raced, width):
    text = printed(raced, width)
    for part in ("documented: 1 chainer", "tuned: 1 pytorch", "compile=true", "Tuned changes nothing for chainer"):
        assert part in text


def test_the_page_tells_both_orders_and_the_change(raced):
    page = page_text(StudyFindings(raced, study_text="name: race\n"), "results")
    for part in ('id="tiers"', "1 chainer allreduce", "compile=true (documented false)", "Tuned changes nothing for"):
        assert part in page


def marked(rank, other_rank, ratio, other_ratio):
    """Return the group of Caffe's exchange by steptime, and of PyTorch."""
    caffe, pytorch = trial("caffe", id="caffe", implementation=MPI), trial("pytorch", id="pytorch")
    places = [place(caffe, rank, ratio), place(pytorch, other_rank, other_ratio)]
    summary = summary_of([caffe, pytorch], places)
    (group,) = ranked_groups(summary, Names(summary.trials))
    return group


def test_the_row_of_a_strategy_that_steptime_implements_says_so():
    assert marked(1, 2, 1.0, 1.5).rows[0].name == f"caffe allreduce ({MPI})"


def test_a_sentence_whose_fastest_is_steptimes_makes_no_claim_about_the_framework():
    assert verdict(marked(1, 2, 1.0, 1.5)) == (
        f"caffe allreduce ({MPI}) is fastest, but not implemented by caffe itself; the fastest native one, "
        "pytorch allreduce, takes 1.50x (1.47 to 1.53) the time."
    )


def test_a_sentence_whose_fastest_is_a_frameworks_own_names_steptimes_apart():
    sentence = verdict(marked(2, 1, 1.5, 1.0))
    assert sentence.startswith("pytorch allreduce is first")
    assert f"No claim about the framework: caffe allreduce ({MPI}) takes 1.50x" in sentence
