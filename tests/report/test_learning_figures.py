"""The pictures of trainings."""

import re
from functools import cache

import pytest
from test_charts import Balance
from trainings import GROUP, asynchronous, schedules, trained, trainings

from steptime.report.learning.accuracy import accuracy_groups, brief_names
from steptime.report.learning.trainings import (
    batch_figures,
    learning_panels,
    schedule_figures,
    staleness_accuracy_figures,
)
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings
from steptime.study.training import RateSchedule, full_parameters, rate_shares


def group_of(study):
    (group,) = accuracy_groups(study)
    return group


SCHEDULES, ASYNCHRONOUS = group_of(schedules()), group_of(asynchronous())
TITLES = {
    "Accuracy against epochs": ("validation accuracy (%)", "epochs"),
    "Accuracy against seconds": ("validation accuracy (%)", "seconds of training (s)"),
    "Learning-rate schedules": ("share of the learning rate (%)", "epochs"),
    "Final accuracy against global batch": ("validation accuracy (%)", "global batch (samples, log scale)"),
    "Final accuracy against staleness": ("validation accuracy (%)", "mean staleness (updates of other workers)"),
}


@cache
def panels():
    """The curves of schedules, drawn when a test first asks and not while tests are collected."""
    return learning_panels(SCHEDULES)


def curves():
    return [figure for panel in panels() for figure in panel.figures]


@cache
def every_figure():
    others = [*schedule_figures(SCHEDULES), *batch_figures(SCHEDULES), *staleness_accuracy_figures(ASYNCHRONOUS)]
    return [*curves(), *others]


def test_trainings_have_a_figure_of_every_title():
    assert {figure.title for figure in every_figure()} == set(TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_axes_of_trainings_have_titles_with_units(title):
    for figure in every_figure():
        assert figure.title != title or all(f">{axis}" in figure.svg for axis in TITLES[title])


@pytest.mark.parametrize("title", TITLES)
def test_a_figure_of_trainings_says_what_it_shows_and_is_whole(title):
    for figure in every_figure():
        if figure.title == title:
            parser = Balance()
            parser.feed(figure.svg)
            assert parser.open == []
            assert re.search(rf'role="img" aria-label="{title}: lenet5 \(', figure.svg)


def test_curves_stand_by_workers():
    assert [panel.title for panel in panels()] == [f"{GROUP}, 1 worker", f"{GROUP}, 2 workers"]


def test_nine_curves_are_spread_over_two_charts():
    assert [figure.title for figure in panels()[0].figures] == 2 * [
        "Accuracy against epochs",
        "Accuracy against seconds",
    ]


def test_a_curve_over_one_seed_has_no_band_and_the_note_says_so():
    assert panels()[0].note.endswith("Without a band: 1 of 9, of one seed each.")
    bands = [len(re.findall(r'<path [^>]*Z"[^>]*fill-opacity="0.16"', figure.svg)) for figure in panels()[0].figures]
    assert bands == [8, 8, 0, 0]


def test_a_study_of_one_seed_says_that_there_are_no_bands():
    (panel,) = learning_panels(group_of(trainings(trained(1, seeds=1), trained(2, "step", seeds=1))))

    assert panel.note.startswith("One seed each: no bands")


def test_trainings_without_accuracy_are_drawn_by_their_loss():
    group = group_of(trainings(trained(1, accuracy=False), trained(2, "step", accuracy=False)))
    (panel,) = learning_panels(group)

    assert [figure.title for figure in panel.figures] == ["Loss against epochs", "Loss against seconds"]
    assert ">validation loss" in panel.figures[0].svg


def test_many_trials_are_cut_to_the_most_accurate_and_the_title_says_so():
    many = [trained(i, optimizer={"name": "sgd", "learning_rate": i / 1000}) for i in range(1, 31)]
    (panel,) = learning_panels(group_of(trainings(*many)))

    assert panel.figures[0].title == "Accuracy against epochs, most accurate 16 of 30"


def test_a_constant_rate_alone_has_no_figure():
    assert schedule_figures(group_of(trainings(trained(1, "constant"), trained(2, "constant", workers=1)))) == []


def test_one_global_batch_has_no_figure():
    assert batch_figures(group_of(trainings(trained(1), trained(2, "step")))) == []


def test_lines_of_batches_are_named_by_rule_and_warm_up():
    (figure,) = batch_figures(
        group_of(
            trainings(
                *[
                    trained(i, scaling_rule=rule, warmup=warmup, workers=workers)
                    for i, (rule, warmup, workers) in enumerate(
                        (r, w, n) for r, w in (("none", 0), ("linear", 5)) for n in (1, 2)
                    )
                ]
            )
        )
    )

    assert ">unscaled rate, warm-up 0<" in figure.svg
    assert ">linear scaling, warm-up 5<" in figure.svg


def test_one_asynchronous_trial_has_no_figure_of_staleness():
    assert staleness_accuracy_figures(group_of(trainings(trained(1), trained(2, staleness=0.9)))) == []


def test_brief_names_leave_out_what_an_axis_shows():
    trials = [trained(1, batch=32), trained(2, "step", batch=64)]

    assert list(brief_names(trials, without=("batch",)).values()) == ["cosine", "step"]


def test_the_page_has_the_table_and_the_figures_of_trainings():
    page = page_text(StudyFindings(schedules(), study_text="version: 1\n"), "results")

    assert "What trainings reached" in page
    assert "98.50 % (98.10 to 98.90)" in page
    assert page.count("<figure>") == len(curves()) + len(schedule_figures(SCHEDULES)) + len(batch_figures(SCHEDULES))
    assert "No trial has a result yet" not in page


def test_every_link_of_a_page_of_trainings_leads_somewhere():
    page = page_text(StudyFindings(asynchronous(), study_text="version: 1\n"), "results")

    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r' id="([^"]+)"', page))


def test_a_curve_of_shares_begins_with_the_warm_up_and_ends_with_the_last_step():
    cosine = RateSchedule(name="cosine", parameters=full_parameters("cosine", {}))
    shares = rate_shares(cosine, 10, 45, 2)

    assert shares[0] == (0.0, pytest.approx(1 / 91))
    assert max(share for _, share in shares) == pytest.approx(1.0)
    assert shares[-1] == (pytest.approx(10 - 1 / 45), pytest.approx(0.0, abs=1e-3))


def test_a_level_curve_is_its_two_ends():
    assert rate_shares(RateSchedule(name="constant"), 10, 45, 0) == [(0.0, 1.0), (449 / 45, 1.0)]
