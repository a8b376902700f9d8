"""The rankings as a section: a table, a verdict and figures for each group of trials that may be compared."""

from collections.abc import Mapping, Sequence
from functools import partial

from steptime.measurements.json_form import IntervalOverLaunches
from steptime.report.charts.chart import Figure, Spec, picture
from steptime.report.charts.distribution import distribution_chart
from steptime.report.charts.marks import MOST, MOST_ROWS, Marks, parts
from steptime.report.charts.rows import ratio_chart, throughput_bars
from steptime.report.groups import RankedGroup, RankedRow, verdict
from steptime.report.number_format import count, drawn_interval, time_unit
from steptime.report.section import (
    Cell,
    Column,
    Figures,
    Part,
    Section,
    SectionTable,
    Sentences,
    TableRow,
    cells,
    mark_notes,
)

Quantiles = Mapping[str, Sequence[tuple[float, float]]]
"""By trial, what ``step_time_quantiles`` returned."""


NO_RESULT = "No trial has a result yet."


def ranking_section(groups: Sequence[RankedGroup], quantiles: Quantiles, marks: Marks) -> Section:
    """Return who is fastest in each group; ``quantiles`` and ``marks`` are for its figures."""
    found: list[Part] = [_group_section(group, quantiles, marks) for group in groups]
    return Section("Rankings", found or [Sentences([NO_RESULT], "bad")], id="rankings", alike=True)


def _group_section(group: RankedGroup, quantiles: Quantiles, marks: Marks) -> Section:
    compared = len(group.rows) > 1
    parts_: list[Part] = [
        SectionTable(
            _columns(group),
            [_table_row(group, row) for row in group.rows],
            layouts=("wide", "plain", "stacked"),
            label=f"Ranking: {group.title}",
        ),
        mark_notes([(row.name, row.trial.flags) for row in group.rows]),
        Figures(partial(group_figures, group, quantiles, marks)),
    ]
    if not compared:
        parts_.insert(0, Sentences([verdict(group)], "bold"))
    return Section(group.title, parts_, verdict=verdict(group) if compared else "")


def _columns(group: RankedGroup) -> list[Column]:
    columns = [
        Column("samples/s"),
        Column("step time"),
        Column("median, p90, p99", shown=("wide", "list", "page")),
        Column("time against\nbest"),
    ]
    if group.has_efficiency:
        columns.append(Column(("efficiency\n" + group.baseline.replace(" (", "\n(")).strip()))
    columns.append(Column("launches", shown=("page",)))
    return [*columns, Column("marks", "prose", shown=("page",))] if group.flags else columns


def _table_row(group: RankedGroup, row: RankedRow) -> TableRow:
    shown = [row.rate, row.time, row.quantiles, row.ratio, *([group.efficiency(row)] if group.has_efficiency else [])]
    launches = Cell(str(row.trial.launches), note=count(row.trial.steps, "step"))
    return TableRow(
        row.name,
        [*cells(*shown), launches, Cell(marks=row.trial.flags)],
        group.rank(row),
        [f"{row.trial.framework} {row.trial.framework_version or 'of unknown version'}"],
        best=row.place.rank == 1,
    )


def group_figures(group: RankedGroup, quantiles: Quantiles, marks: Marks) -> list[Figure]:
    """Return throughput and time against the best, where there are several trials, and how step times spread."""
    rows = group.rows[:MOST_ROWS]
    some = f", fastest {len(rows)} of {len(group.rows)}" if len(rows) < len(group.rows) else ""
    figures = []
    if len(rows) > 1:  # a bar alone compares nothing
        bars = [_row(group, row, row.rate.line, row.trial.throughput_samples_per_s, marks) for row in rows]
        figures.append(picture(f"Throughput{some}", throughput_bars(bars), group.title))
        ratios = [_row(group, row, row.ratio.line, row.place.ratio_to_best, marks) for row in rows]
        figures.append(picture(f"Time against best{some}", ratio_chart(ratios), group.title))
    drawn = [row for row in rows if len(quantiles.get(row.trial.id, ())) > 1]
    for part in parts(drawn):
        which = f", ranks {part[0].place.rank} to {part[-1].place.rank}" if len(drawn) > MOST else ""
        figures.append(
            picture(f"How step times spread{which}", _distribution(group, part, drawn, quantiles, marks), group.title)
        )
    return figures


def _row(
    group: RankedGroup, row: RankedRow, shown: str, value: IntervalOverLaunches[float | None], marks: Marks
) -> Spec:
    # The best's ratio is 1 by definition: its interval has no length.
    best = value is row.place.ratio_to_best and row.place.rank == 1
    low, high = drawn_interval(value)
    return {
        "name": f"{group.rank(row)} {row.name}",
        "shown": shown,
        "value": value.value,
        "low": None if best else low,
        "high": None if best else high,
        "colour": marks.colour(row.name),
    }


def _distribution(
    group: RankedGroup, part: Sequence[RankedRow], drawn: Sequence[RankedRow], quantiles: Quantiles, marks: Marks
) -> Spec:
    seconds = [time for row in drawn for _, time in quantiles[row.trial.id]]
    factor, unit = time_unit(min(seconds))
    rows = [
        {"name": f"{group.rank(row)} {row.name}", "series": row.name, "time": time * factor, "share": share}
        for row in part
        for share, time in quantiles[row.trial.id]
    ]
    # All parts of a group have the same axis.
    return distribution_chart(rows, unit, (min(seconds) * factor, max(seconds) * factor), marks)
