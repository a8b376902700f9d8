"""What trainings reached by learning-rate schedule: a row for all else in which they differ, a column per schedule."""

from collections.abc import Iterator
from dataclasses import dataclass

from steptime.report.accuracy import AccuracyGroup, AccuracyRow, final_value, shared_names
from steptime.report.number_format import UNKNOWN, Shown, count

_FEWEST = 2
"""Schedules and rows; of one alone, the list of trainings says as much."""


@dataclass(frozen=True)
class ScheduleRow:
    """The trainings that differ in nothing but their schedule."""

    name: str
    cells: list[Shown]
    """One for each schedule of the table."""


@dataclass(frozen=True)
class ScheduleTable:
    """Final accuracies, or losses, of one group of trainings; the best first, in both directions."""

    title: str
    schedules: list[str]
    rows: list[ScheduleRow]

    @property
    def lines(self) -> Iterator[str]:
        """Each row as a sentence, for where the table does not fit."""
        for row in self.rows:
            cells = zip(self.schedules, row.cells, strict=True)
            yield f"{row.name}: " + "; ".join(f"{schedule} {cell.line}" for schedule, cell in cells)


def schedule_table(group: AccuracyGroup) -> ScheduleTable | None:
    """Return the table of a group; None if it has one schedule or one row, or two trainings for one cell."""
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
        ScheduleRow(name, [final_value(own[each].found) if each in own else Shown(UNKNOWN, "") for each in schedules])
        for name, own in found.items()
    ]
    return ScheduleTable(_title(group), schedules, rows)


def _title(group: AccuracyGroup) -> str:
    """``Final accuracy by schedule, mean of 5 seeds``."""
    seeds = sorted({len(row.found.seeds) for row in group.rows})
    what = "accuracy" if all(row.found.final_accuracy for row in group.rows) else "value"
    over = count(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    return f"Final {what} by schedule, mean of {over}"
