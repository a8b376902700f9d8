"""What trainings reached: all of them, and by learning-rate schedule with a row for all else in which they differ.

The pictures of trainings: learning curves, schedules, and accuracy against global batch and staleness.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter

from steptime.analysis.accuracy import OverSeeds, TrainingSummary
from steptime.analysis.summary_form import Summary
from steptime.document.charts.chart import MOST_ROWS, Figure, Marks, Spec, parts, picture
from steptime.document.charts.trainings import (
    ACCURACY,
    LOSS,
    batch_lines,
    learning_curves,
    rate_lines,
    staleness_points,
)
from steptime.document.number_format import UNKNOWN, count
from steptime.document.section import Cell, Column, Figures, Part, Section, SectionTable, TableRow, cells
from steptime.report.learning.accuracy import (
    EXPLANATION,
    AccuracyGroup,
    AccuracyRow,
    accuracy_groups,
    brief_names,
    final_value,
    shared_names,
)
from steptime.study.training import RateSchedule, rate_shares

_PLATEAU = "plateau"


@dataclass(frozen=True)
class LearningPanel:
    """The learning curves of trials with equally many workers."""

    title: str
    note: str
    """Which lines have a band, in a sentence."""
    rows: list[AccuracyRow]

    @cached_property
    def figures(self) -> list[Figure]:
        """Its pictures, drawn when they are asked for."""
        return list(_curves(self.rows, self.title))


def learning_panels(group: AccuracyGroup) -> list[LearningPanel]:
    """Return the learning curves of a group, by workers; each shows the most accurate trials."""
    panels = []
    for workers in dict.fromkeys(row.trial.workers for row in group.rows):
        own = [row for row in group.rows if row.trial.workers == workers]
        title = f"{group.title}, {count(workers, 'worker')}"
        panels.append(LearningPanel(title, _note(own[:MOST_ROWS]), own))
    return panels


def schedule_figures(group: AccuracyGroup) -> list[Figure]:
    """Return the learning-rate schedules of a group; none where the rate of all is constant."""
    epochs = {row.found.epochs for row in group.rows}
    warmups = {row.found.warmup_epochs for row in group.rows}
    curves: dict[str, list[Spec]] = {}
    for row in group.rows:
        found = row.found
        name = found.schedule
        name += f", warm-up {found.warmup_epochs}" if len(warmups) > 1 else ""
        name += f", {found.epochs} epochs" if len(epochs) > 1 else ""
        if found.rate_schedule["name"] == _PLATEAU:
            # Every training has a plateau of its own; that of the most accurate one is shown.
            name = f"{name}, of the most accurate"
        if name not in curves:
            curves[name] = [{"name": name, "epoch": epoch, "share": share} for epoch, share in _shares(found)]
    if set(curves) <= {"constant"} and warmups == {0}:
        return []
    marks = Marks([(name, name) for name in curves])
    return [
        picture("Learning-rate schedules", rate_lines([row for own in part for row in own], marks), group.title)
        for part in parts(list(curves.values()))
    ]


def batch_figures(group: AccuracyGroup) -> list[Figure]:
    """Return final accuracy against the global batch, where there are several; a line for each rule and warm-up."""
    if len({row.global_batch for row in group.rows}) == 1:
        return []
    series = _batch_series(group.rows)
    varied = any(len({row.trial.workers for row in own}) > 1 for own in series)
    names = brief_names([own[-1].trial for own in series], without=("batch", "workers") if varied else ("batch",))
    marks = Marks([(names[own[-1].trial.id], names[own[-1].trial.id]) for own in series])
    figures = []
    for part in parts(series[:MOST_ROWS]):
        rows = [_final(row, names[own[-1].trial.id], row.global_batch) for own in part for row in own]
        title = f"{_measured(group.rows)} against global batch"
        figures.append(picture(title, batch_lines(rows, marks, _axis(group.rows)), group.title))
    return figures


def staleness_accuracy_figures(group: AccuracyGroup) -> list[Figure]:
    """Return final accuracy against mean staleness, where updates of more than one trial could be stale."""
    stale = [row for row in group.rows if row.found.staleness is not None][:MOST_ROWS]
    if len(stale) <= 1:
        return []
    names = brief_names([row.trial for row in stale])
    marks = Marks([(row.trial.framework, f"{row.rank} {names[row.trial.id]}") for row in stale])
    figures = []
    for part in parts(stale):
        rows = [_final(row, f"{row.rank} {names[row.trial.id]}", row.found.staleness or 0.0) for row in part]
        title = f"{_measured(stale)} against staleness"
        figures.append(picture(title, staleness_points(rows, marks, _axis(stale)), group.title))
    return figures


def _note(rows: Sequence[AccuracyRow]) -> str:
    alone = sum(len(row.found.seeds) == 1 for row in rows)
    if alone == len(rows):
        return "One seed each: no bands, and how seeds differ is unknown."
    bands = "Bands are Student's 95 % intervals over seeds; trainings that ended before keep their last value."
    return f"{bands} Without a band: {alone} of {len(rows)}, of one seed each." if alone else bands


def _curves(rows: Sequence[AccuracyRow], title: str) -> Iterator[Figure]:
    names = brief_names([row.trial for row in rows])
    shown = rows[:MOST_ROWS]
    marks = Marks([(_colour_key(row, rows), names[row.trial.id]) for row in shown])
    some = f", most accurate {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    for part in parts(shown):
        series = [names[row.trial.id] for row in part]
        for words, field, x in (
            ("epochs", "epoch", "epochs"),
            ("seconds", "seconds", "seconds of training (s), mean over seeds"),
        ):
            points = [
                {"name": f"{row.rank} {names[row.trial.id]}", "x": getattr(point, field), **_value(value)}
                for row in part
                for point in row.found.curve
                if (value := point.loss if _by_loss(shown) else point.accuracy) is not None
            ]
            if {point["name"] for point in points} == {f"{row.rank} {names[row.trial.id]}" for row in part}:
                spec = learning_curves(points, series, marks, x=x, measure=_axis(shown))
                yield picture(f"{_measured(shown, final=False)} against {words}{some}", spec, title)


def _colour_key(row: AccuracyRow, rows: Sequence[AccuracyRow]) -> str:
    """Return what decides a line's colour: the first of schedule, optimizer and framework in which trials differ."""

    def keys(each: AccuracyRow) -> tuple[str, str, str]:
        optimizer = f"{each.found.optimizer['name']} {each.found.optimizer['learning_rate']}"
        return each.found.schedule, optimizer, each.trial.framework

    found = [keys(each) for each in rows]
    return next(
        (own for own, all_of in zip(keys(row), zip(*found, strict=True), strict=True) if len(set(all_of)) > 1), ""
    )


def _by_loss(rows: Sequence[AccuracyRow]) -> bool:
    return any(row.found.final_accuracy is None for row in rows)


def _axis(rows: Sequence[AccuracyRow]) -> Spec:
    return LOSS if _by_loss(rows) else ACCURACY


def _measured(rows: Sequence[AccuracyRow], *, final: bool = True) -> str:
    what = "loss" if _by_loss(rows) else "accuracy"
    return f"Final {what}" if final else what.capitalize()


def _value(value: OverSeeds) -> Spec:
    return {"value": value.value, "low": value.low, "high": value.high}


def _final(row: AccuracyRow, name: str, x: float) -> Spec:
    value = row.found.final_accuracy or row.found.final_loss
    return {"name": name, "x": x, **(_value(value) if value else {"value": None, "low": None, "high": None})}


def _shares(found: TrainingSummary) -> list[tuple[float, float]]:
    schedule = RateSchedule(**found.rate_schedule)
    shares = rate_shares(schedule, found.epochs, found.steps_per_epoch, found.warmup_epochs)
    if schedule.name != _PLATEAU:
        return shares
    # The rate follows the validation losses of the training, so that the measured one is shown.
    warm = [(epoch, share) for epoch, share in shares if epoch < found.warmup_epochs]
    later = [point for point in found.curve if point.epoch > found.warmup_epochs]
    ends = [
        (epoch, point.learning_rate / found.learning_rate)
        for point in later
        for epoch in (point.epoch - 1, point.epoch)
    ]
    return warm + [(float(epoch), share) for epoch, share in ends]


def _batch_series(rows: Sequence[AccuracyRow]) -> list[list[AccuracyRow]]:
    """Return the trials of each line, by their global batch; a single worker begins the lines of its framework."""

    def key(row: AccuracyRow, *apart: object) -> tuple[object, ...]:
        found, trial = row.found, row.trial
        optimizer = tuple(sorted((name, str(value)) for name, value in found.optimizer.items()))
        conditions = (trial.framework, trial.loader, trial.precision, optimizer, found.schedule)
        return (*conditions, found.scaling_rule, found.warmup_epochs, *apart)

    def lines(*, by_workers: bool) -> dict[tuple[object, ...], list[AccuracyRow]]:
        found: dict[tuple[object, ...], list[AccuracyRow]] = {}
        alone = [] if by_workers else [row for row in rows if row.trial.workers == 1]
        for row in rows:
            if row not in alone:
                line = key(row, row.trial.strategy, row.trial.workers if by_workers else None)
                found.setdefault(line, []).append(row)
        for row in alone:
            joined = [own for name, own in found.items() if name[:-2] == key(row) and own[0].trial.workers > 1]
            for own in joined or [found.setdefault(key(row, row.trial.strategy, None), [])]:
                own.append(row)
        return found

    found = lines(by_workers=False)
    if any(len({row.global_batch for row in own}) < len(own) for own in found.values()):
        found = lines(by_workers=True)
    return [sorted(own, key=lambda row: row.global_batch) for own in found.values()]


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
    return TableRow(row.name, shown, row.rank, best=row.first, sentence=row.line)


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
