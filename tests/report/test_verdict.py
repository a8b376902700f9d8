"""What a ranking says."""

import pytest
from summaries import place, summary, trial

from steptime.analysis.summary_form import Scaling
from steptime.report.groups import ranked_groups, verdict
from steptime.report.overview import scaling_sentences, sentences
from steptime.report.trial_names import Names
from steptime.results.json_form import IntervalOverLaunches

FAST, NEXT, SLOW = trial(rate=1240.0), trial("mxnet", "ps_sync", rate=1000.0), trial("tensorflow", rate=400.0)


def said(*places):
    trials = [each for each in (FAST, NEXT, SLOW) if each.id in {place.trial for place in places}]
    study = summary(trials, list(places))
    return verdict(ranked_groups(study, Names(study.trials))[0])


def test_the_fastest_is_named_with_the_ratio_of_the_next():
    sentence = said(place(FAST, 1), place(NEXT, 2, 1.24, width=0.04))

    assert sentence == "pytorch allreduce is fastest: mxnet ps_sync takes 1.24x (1.19 to 1.29) the time."


def test_the_slowest_is_named_as_well():
    assert said(place(FAST, 1), place(NEXT, 2, 1.24), place(SLOW, 3, 3.1)).endswith(
        "; tensorflow allreduce, the slowest, 3.10x (3.01 to 3.19)."
    )


def test_two_that_tie_cannot_be_told_apart_and_what_would_settle_it_is_said():
    sentence = said(place(FAST, 1), place(NEXT, 2, 1.01, more=5))

    assert sentence == (
        "pytorch allreduce and mxnet ps_sync cannot be distinguished at this budget: the second takes "
        "1.01x (0.98 to 1.04) the time of the first; about 5 more launches of each would settle 3 %."
    )


def test_one_more_launch_is_one_launch():
    assert "about 1 more launch of each" in said(place(FAST, 1), place(NEXT, 2, 1.01, more=1))


def test_many_launches_are_not_asked_for_where_trials_are_near():
    assert said(place(FAST, 1), place(NEXT, 2, 1.01, width=0.05, more=141)).endswith(
        "the time of the first; not worth settling: they differ by at most 6.05 %."
    )


def test_many_launches_are_not_asked_for_where_they_vary_too_much():
    assert said(place(FAST, 1), place(NEXT, 2, 1.1, width=0.3, more=141)).endswith(
        "; they differ by at most 1.43x, and launches vary too much for more: rerun on a quieter machine."
    )


@pytest.mark.parametrize(
    ("launches", "advice"),
    [
        (2, "; 2 launches of one cannot show how its launches differ: make 3 of each."),
        (5, "; launches vary too much for a ratio: rerun on a quieter machine."),
    ],
)
def test_ratios_whose_ends_lie_far_apart_bound_no_difference(launches, advice):
    second = NEXT.model_copy(update={"launches": launches})
    study = summary([FAST, second], [place(FAST, 1), place(second, 2, 1.3, width=3.0, more=900)])
    assert verdict(ranked_groups(study, Names(study.trials))[0]).endswith(advice)


def test_the_most_that_any_of_several_ties_differs_by_is_said():
    assert "the others differ from the first by at most 1.43x" in said(
        place(FAST, 1), place(NEXT, 2, 1.01, width=0.05, more=141), place(SLOW, 3, 1.1, width=0.3, more=200)
    )


def test_a_tie_that_is_known_closely_needs_no_more_launches():
    assert "known to within 3 % already" in said(place(FAST, 1), place(NEXT, 2, 1.001, width=0.01, more=0))


def test_a_tie_that_nothing_is_known_about_promises_nothing():
    assert "more launch" not in said(place(FAST, 1), place(NEXT, 2, 1.01, more=None))


def test_whoever_is_behind_a_tie_is_named_with_the_ratio():
    assert said(place(FAST, 1), place(NEXT, 2, 1.01), place(SLOW, 3, 3.1)).endswith(
        "The next, tensorflow allreduce, takes 3.10x (3.01 to 3.19) the time of pytorch allreduce."
    )


def test_who_is_alone_is_not_called_the_fastest():
    sentence = said(place(FAST, 1))

    assert sentence == (
        "pytorch allreduce computes 1240 samples/s (1215 to 1265); nothing else was measured to compare it with."
    )


def alone(low, high, least, most):
    """Return the sentence about a trial that is alone, whose launches computed from ``least`` to ``most``."""
    rate = IntervalOverLaunches(1240.0, low, high, least, most)
    one = FAST.model_copy(update={"throughput_samples_per_s": rate})
    study = summary([one], [place(one, 1)])
    return verdict(ranked_groups(study, Names(study.trials))[0])


def test_launches_that_are_far_apart_are_a_range_and_no_number():
    assert alone(100.0, 9000.0, 4214.0, 8263.0).startswith(
        "pytorch allreduce computes 4214 to 8263 samples/s by launch; "
    )


def test_a_launch_that_is_alone_is_called_so():
    assert alone(100.0, 9000.0, 1342.0, 1342.0).startswith("pytorch allreduce computes 1342 samples/s in one launch; ")


SPEEDUPS = {
    "a gain": ((1.52, 1.41, 1.63, 1.4, 1.7), "computes 1.52x (1.41 to 1.63) the samples/s of 1 worker"),
    "perhaps none": (
        (1.1, 0.79, 1.58, 0.8, 1.6),
        "computes 1.10x (0.79 to 1.58) the samples/s of 1 worker, which may be no gain: more launches, or a quieter",
    ),
    "more than the workers": (
        (2.68, 2.2, 3.1, 2.0, 3.2),
        "computes 2.68x (2.20 to 3.10) the samples/s of 1 worker, more than further workers can bring: what slowed 1 w",
    ),
    "a loss": ((0.5, 0.45, 0.55, 0.4, 0.6), "computes 0.500x (0.450 to 0.550) the samples/s of 1 worker: fewer are"),
    "one launch each": (
        (1.52, None, None, 1.52, 1.52),
        "computed 1.52x the samples/s of 1 worker, in one launch each, which may be chance: 3 launches of each",
    ),
    "not told": (
        (1.5, 0.3, 7.0, 0.79, 3.1),
        "is faster than with 1 worker cannot be told: its launches computed 0.790 to 3.10 times the samples/s; more",
    ),
}


@pytest.mark.parametrize("case", SPEEDUPS)
def test_the_answer_says_what_a_second_worker_brings(case):
    numbers, words = SPEEDUPS[case]
    brought = Scaling(workers=1, strategy="single", speedup=IntervalOverLaunches(*numbers))
    one, two = trial("pytorch", "single", workers=1), FAST.model_copy(update={"scaling": brought})
    study = summary([one, two], [place(one, 1), place(two, 1)])

    (sentence,) = sentences(study)

    assert f"pytorch allreduce with 2 workers {words}" in sentence


def test_a_study_of_one_number_of_workers_says_nothing_of_another():
    study = summary([FAST, NEXT], [place(FAST, 1), place(NEXT, 2, 1.24)])
    assert scaling_sentences(ranked_groups(study, Names(study.trials))) == []


def test_a_ratio_without_an_interval_is_not_certain():
    sentence = said(place(FAST, 1), place(NEXT, 2, 1.24, width=None))

    assert sentence.startswith("In this order, with one launch each, which cannot show how launches differ: ")


def test_trials_with_one_launch_each_have_no_rank():
    once = FAST.model_copy(update={"launches": 1})
    study = summary([once, NEXT], [place(once, 1), place(NEXT, 2, 1.24, width=None)])
    group = ranked_groups(study, Names(study.trials))[0]

    assert [group.rank(row) for row in group.rows] == ["", ""]


def test_what_is_shown_to_be_slower_is_called_so_where_by_how_much_is_open():
    shown = place(SLOW, 3, 4.0)
    wide = shown.model_copy(
        update={"ratio_to_best": IntervalOverLaunches(value=4.0, low=1.9, high=8.6, least=3.6, most=4.5)}
    )

    assert said(place(FAST, 1), place(NEXT, 2, 1.01), wide).endswith(
        " The next, tensorflow allreduce, is slower than pytorch allreduce (launches: 3.60 to 4.50x)."
    )
    assert said(place(FAST, 1), wide) == (
        "pytorch allreduce is fastest: tensorflow allreduce is slower (launches: 3.60 to 4.50x)."
    )
    assert said(place(FAST, 1), place(NEXT, 2, 1.24), wide).endswith(
        "; tensorflow allreduce, the slowest (launches: 3.60 to 4.50x)."
    )
