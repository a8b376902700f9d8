"""The table of trainings: numbers over seeds with their intervals, or with the range where those say nothing."""

from trainings import trained, trainings

from steptime.analysis.accuracy import over_seeds
from steptime.report.learning.accuracy import accuracy_groups
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings

WIDE = over_seeds([100.0, 2900.0], lowest=0.0)
"""Of two seeds: 1500, from 0 to 19288."""


def row(**changes):
    one = trained(1, seeds=2)
    study = trainings(one.model_copy(update={"training": one.training.model_copy(update=changes)}))
    return accuracy_groups(study)[0].rows[0]


def test_an_interval_that_is_wider_than_four_times_gives_way_to_the_range():
    assert row(samples_per_s=WIDE).rate == "inconclusive (seeds: 100 to 2900)"


def test_seconds_of_training_are_inconclusive_too():
    assert row(training_s=WIDE).seconds == "inconclusive (seeds: 1 min 40 s to 48 min 20 s)"


def test_an_accuracy_that_may_be_anything_is_inconclusive():
    assert row(final_accuracy=over_seeds([0.001, 0.1], lowest=0.0, highest=1.0)).final == (
        "inconclusive (seeds: 0.10 to 10.00 %), 2 seeds"
    )


def test_time_to_target_is_inconclusive():
    reached = {"target_accuracy": 0.9, "reached_target": 2, "seconds_to_target": WIDE, "samples_to_target": WIDE}

    assert "reached 90 % in inconclusive (seeds: 1 min 40 s to 48 min 20 s)" in row(**reached).to_target


def test_a_usual_interval_stands():
    assert row(samples_per_s=over_seeds([990.0, 1010.0], lowest=0.0)).rate == "1000 (873 to 1127)"


def test_the_column_of_final_values_does_not_repeat_its_title():
    found = row()

    assert found.final.startswith("98.00 % (")
    assert f": final {found.final}" in found.line


def test_the_page_shows_no_interval_that_says_nothing():
    one = trained(1, seeds=2)
    wide = one.training.model_copy(update={"samples_per_s": WIDE})

    assert "inconclusive (seeds: 100 to 2900)" in page_text(
        StudyFindings(trainings(one.model_copy(update={"training": wide})), study_text="version: 1\n"), "results"
    )
