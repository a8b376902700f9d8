"""The charts of a page, with the rows of each: numbers are picked and their units changed, nothing else."""

from collections.abc import Iterator, Mapping, Sequence

from steptime.measurements.efficiency import ideal_throughput
from steptime.measurements.json_form import IntervalOverLaunches
from steptime.measurements.summary_form import Efficiency, TrialSummary
from steptime.report.charts.chart import Figure, Spec, picture
from steptime.report.charts.distribution import distribution_chart
from steptime.report.charts.marks import MOST, MOST_ROWS, Marks, parts
from steptime.report.charts.rows import ratio_chart, throughput_bars
from steptime.report.charts.scaling import efficiency_lines, throughput_lines
from steptime.report.curves import Curve, Panel
from steptime.report.groups import RankedGroup, RankedRow
from steptime.report.number_format import drawn_interval, time_unit

Quantiles = Mapping[str, Sequence[tuple[float, float]]]
"""By trial, what ``step_time_quantiles`` returned."""


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


def panel_figures(panel: Panel, marks: Marks) -> list[Figure]:
    """Return throughput and, where there is a baseline, efficiency against workers."""
    figures = []
    for part in parts(panel.curves):
        throughput = [row for curve in part for row in _throughput_rows(curve)]
        figures.append(picture("Throughput", throughput_lines(throughput, marks), panel.title))
        efficiency = [row for curve in part for row in _efficiency_rows(curve)]
        if panel.weak and efficiency:
            figures.append(picture("Efficiency", efficiency_lines(efficiency, marks), panel.title))
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


def _throughput_rows(curve: Curve) -> Iterator[Spec]:
    for trial in curve.trials:
        yield _point(curve, trial, trial.throughput_samples_per_s)
    for workers, rate in ideal_throughput(curve.trials):
        yield {"name": curve.name, "workers": workers, "value": rate, "ideal": True}


def _efficiency_rows(curve: Curve) -> Iterator[Spec]:
    known = [trial for trial in curve.trials if trial.efficiency.value is not None]
    if len({trial.workers for trial in known}) > 1:  # a baseline alone is 100 % of itself
        for trial in known:
            yield _point(curve, trial, trial.efficiency)
            yield {"name": curve.name, "workers": trial.workers, "value": 1.0, "ideal": True}


def _point(curve: Curve, trial: TrialSummary, value: IntervalOverLaunches[float | None] | Efficiency) -> Spec:
    low, high = drawn_interval(value)
    return {
        "name": curve.name,
        "workers": trial.workers,
        "value": value.value,
        "low": low,
        "high": high,
        "ideal": False,
    }
