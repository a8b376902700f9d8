"""The table of final accuracies: a column for each learning-rate schedule, a row for all else that differs."""

import pytest
from rich.console import Console
from trainings import trained, trainings

from steptime.report.learning.accuracy import accuracy_groups
from steptime.report.learning.trainings import schedule_table
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings, WholeReport

ADAM = {"name": "adam", "learning_rate": 0.002}


def two_by_two(**changes):
    """Two optimizers by two schedules, without the training that would be the worst."""
    return trainings(
        trained(1, "cosine", optimizer=ADAM, final=0.99, **changes),
        trained(2, "step", optimizer=ADAM, final=0.985, **changes),
        trained(3, "cosine", final=0.98, **changes),
    )


def table_of(study):
    (group,) = accuracy_groups(study)
    return schedule_table(group)


def rows_of(study):
    return table_of(study).parts[0].rows


def printed(study, width):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(WholeReport(StudyFindings(study)))
    return captured.get()


def test_rows_are_what_differs_besides_the_schedule():
    assert [row.name for row in rows_of(two_by_two())] == ["adam, rate 0.002", "sgd, rate 0.05"]


def test_columns_are_schedules_with_that_of_the_best_training_first():
    assert [column.title for column in table_of(two_by_two()).parts[0].columns] == ["cosine", "step"]


def test_a_cell_has_the_mean_and_its_interval():
    assert rows_of(two_by_two())[0].cells[1].line == "98.50 % (98.10 to 98.90)"


def test_what_was_not_trained_is_unknown():
    assert rows_of(two_by_two())[1].cells[1].line == "-"


def test_the_title_says_of_how_many_seeds():
    assert table_of(two_by_two()).title == "Final accuracy by schedule, mean of 5 seeds"


def test_the_title_says_that_trainings_have_different_numbers_of_seeds():
    study = trainings(
        trained(1, "cosine", seeds=2), trained(2, "step"), trained(3, "cosine", optimizer=ADAM), trained(4, "constant")
    )

    assert table_of(study).title.endswith("mean of 2 to 5 seeds")


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(trainings(trained(1, "cosine"), trained(2, "step")), id="one row"),
        pytest.param(trainings(trained(1), trained(2, optimizer=ADAM)), id="one schedule"),
        pytest.param(trainings(trained(1), trained(2), trained(3, "step", optimizer=ADAM)), id="two for one cell"),
    ],
)
def test_there_is_no_table_where_the_list_says_as_much(study):
    assert table_of(study) is None


def test_losses_are_shown_where_nothing_is_right_or_wrong():
    found = table_of(two_by_two(accuracy=False))

    assert found.title.startswith("Final value by schedule")
    assert found.parts[0].rows[0].cells[0].text == "0.130"


@pytest.mark.parametrize("width", [40, 80, 160])
def test_every_cell_is_printed_whole_in_every_width(width):
    lines = printed(two_by_two(), width).partition("Final accuracy by schedule")[2].partition("All trainings")[0]

    assert " ".join(lines.split()).count("98.10 to 98.90") == 1


def test_the_page_has_the_table():
    page = page_text(StudyFindings(two_by_two(), study_text="version: 1\n"), "results")

    assert "Final accuracy by schedule, mean of 5 seeds" in page
    assert '<th class="number" scope="col">cosine</th>' in page
