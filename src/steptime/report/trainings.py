"""What trainings reached: all of them, and by learning-rate schedule with a row for all else in which they differ."""

from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from steptime.measurements.summary_form import Summary
from steptime.report.accuracy import (
    EXPLANATION,
    AccuracyGroup,
    AccuracyRow,
    accuracy_groups,
    final_value,
    shared_names,
)
from steptime.report.charts.chart import Figure
from steptime.report.learning_figures import (
    batch_figures,
    learning_panels,
    schedule_figures,
    staleness_accuracy_figures,
)
from steptime.report.number_format import UNKNOWN, count
from steptime.report.section import Cell, Column, Figures, Part, Section, SectionTable, TableRow, cells

_FEWEST = 2
"""Schedules and rows; of one alone, the list of trainings says as much."""


def training_section(summary: Summary) -> Section | None:
    """Return what trainings reached; None of a study that trains nothing to its end."""
    groups = [Section(group.title, list(_group_parts(group))) for group in accuracy_groups(summary)]
    return Section("What trainings reached", groups, EXPLANATION, id="accuracy") if groups else None


def _group_parts(group: AccuracyGroup) -> Iterator[Part]:
    every = _every_training(group)
    if by_schedule := schedule_table(group):
        yield by_schedule
        yield Section("All trainings", [every])
    else:
        yield every
    for panel in learning_panels(group):
        yield Section(panel.title, [Figures(partial(attrgetter("figures"), panel))], panel.note, only="page")
    yield Figures(partial(_figures, group))


def _every_training(group: AccuracyGroup) -> SectionTable:
    titles = ("final", "against the best", "best epoch", "loss", "time to accuracy", "training", "samples/s")
    return SectionTable(
        [Column(title) for title in (*titles, "mean staleness")],
        [_row(row) for row in group.rows],
        "framework, strategy and what differs",
        label=f"What trainings reached: {group.title}",
    )


def _row(row: AccuracyRow) -> TableRow:
    diverged = f"{row.found.diverged} diverged" if row.found.diverged else ""
    staleness = UNKNOWN if row.found.staleness is None else f"{row.found.staleness:.2g}"
    others = (row.difference, row.best, row.loss, row.to_target, row.seconds, row.rate, staleness)
    shown = [Cell(row.final, note=diverged), *(Cell(each or UNKNOWN) for each in others)]
    return TableRow(row.name, shown, row.rank, best=row.rank == "1", sentence=row.line)


def _figures(group: AccuracyGroup) -> list[Figure]:
    return [*schedule_figures(group), *batch_figures(group), *staleness_accuracy_figures(group)]


def schedule_table(group: AccuracyGroup) -> Section | None:
    """Return final accuracies, or losses, by schedule, best first.

    None if there is one schedule or one row, or two trainings for one cell.
    """
    names = shared_names([row.trial for row in group.rows], without=("schedule",))
    found: dict[str, dict[str, AccuracyRow]] = {}
    for row in group.rows:
        own = found.setdefault(names[row.trial.id], {})
        if row.found.schedule in own:
            return None
        own[row.found.schedule] = row
    schedules = list(dict.fromkeys(row.found.schedule for row in group.rows))
    if len(schedules) < _FEWEST or len(found) < _FEWEST:
        return None
    rows = [
        TableRow(name, cells(*(final_value(own[each].found) if each in own else UNKNOWN for each in schedules)))
        for name, own in found.items()
    ]
    columns = [Column(schedule) for schedule in schedules]
    table = SectionTable(columns, rows, "all else that differs", layouts=("plain", "stacked"))
    return Section(_title(group), [table])


def _title(group: AccuracyGroup) -> str:
    """``Final accuracy by schedule, mean of 5 seeds``."""
    seeds = sorted({len(row.found.seeds) for row in group.rows})
    what = "accuracy" if all(row.found.final_accuracy for row in group.rows) else "value"
    over = count(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    return f"Final {what} by schedule, mean of {over}"
