"""A sweep: its answer, the table of numbers of workers, and the pictures of how far more of them help."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from steptime.document.charts.chart import GREY, Figure, Spec, chart, picture
from steptime.document.charts.rows import axis_by_doublings, axis_from_zero, workers_axis
from steptime.document.number_format import INCONCLUSIVE, number, percent, seconds, times
from steptime.document.section import Cell, Column, Figures, Part, Section, SectionTable, Sentences, TableRow
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.scaling.knee import knee_line, knee_of
from steptime.units import format_seconds, is_undecided

if TYPE_CHECKING:  # whose model takes longer to import than most reports
    from steptime.scaling.sweep_answer import SweepAnswer, SweepCurve, SweepForecast, SweepNext, SweepPoint

_MEASURED, _FORECAST, _IDEAL = "#0072B2", "#D55E00", GREY
_UNKNOWN = "-"
_EXTRAS = {
    "samples_per_s": "samples/s",
    "device_h_per_epoch": "device-hours\nper epoch",
    "money_per_epoch": "money\nper epoch",
    "joules_per_epoch": "joules\nper epoch",
}
"""Columns that a table has where one of its points knows their value."""
_HOW = {
    "stated": "as stated",
    "batches": "by the batches of loaders",
    "passes": "since each of more workers has fewer backward passes in a step",
    "steps": "since runs of more workers have fewer steps",
    "assumed": "assumed, since steps do not tell; --strong if all workers share one batch",
}
_KIND = {
    "weak": "every worker keeps its batch (weak scaling)",
    "strong": "all workers share one batch (strong scaling)",
}
_ABOUT = (
    "Points are measured, with intervals of 95 % over repeated runs; the band is the forecast with its interval of "
    "90 %, the dashed line ideal, and vertical lines are where a knee lies (medians). What reaches the upper edge is "
    "longer."
)


def sweep_section(answer: "SweepAnswer") -> Section:
    """Return what a sweep found."""
    parts: list[Part] = []
    for curve in answer.curves:
        parts += [Section(curve.name or "all runs", _parts(curve))] if len(answer.curves) > 1 else _parts(curve)
    parts.append(Sentences(answer.missing, "warning"))
    return Section("Scaling of the command", parts, verdict=answers(answer), id="sweep")


def answers(answer: "SweepAnswer") -> str:
    """Return the answers of all curves in a paragraph."""
    named = [f"{curve.name}: {curve.sentence}" if curve.name else curve.sentence for curve in answer.curves]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in named)


def _parts(curve: "SweepCurve") -> list[Part]:
    notes = [f"Taken to be that {_KIND[curve.kind]}, {_HOW[curve.kind_from]}."]
    notes += [knee_line([knee_of(knee) for knee in curve.knees])] if curve.knees else []
    notes += [_next_line(curve.next)] if curve.next else []
    notes += [f"No forecast: {curve.no_forecast}."] if curve.no_forecast else []
    notes += [f"Cores: {curve.cores}."] if curve.cores else []
    notes += [f"No joules per epoch: {curve.no_joules}."] if curve.no_joules else []
    return [_table(curve), Sentences(notes), Figures(partial(_figures, curve), note=_ABOUT)]


def _next_line(following: "SweepNext") -> str:
    one, other = following.workers
    text = (
        f"Measure next {one} and {other} workers: the ends of the interval at {following.target} are then expected a "
        f"factor of {following.expected:.3g} apart (now {following.now:.3g})"
    )
    if following.benchmark is not None:
        text += f"; {following.benchmark} brings {following.expected_with_benchmark:.3g}"
    return f"{text}."


def _table(curve: "SweepCurve") -> SectionTable:
    shown = [name for name in _EXTRAS if any(getattr(point, name) is not None for point in curve.points)]
    columns = [Column("step time"), Column("steps/s"), Column("speed-up"), Column("efficiency")]
    columns += [*(Column(_EXTRAS[name]) for name in shown), Column("runs")]
    rows = [TableRow(f"{point.workers}", _measured_cells(point, shown)) for point in curve.points]
    rows += [TableRow(f"{point.workers} (forecast)", _forecast_cells(point, len(shown))) for point in curve.forecast]
    return SectionTable(columns, rows, "workers", ("wide", "stacked", "split"))


def _measured_cells(point: "SweepPoint", shown: Sequence[str]) -> list[Cell]:
    more = [getattr(point, name) for name in shown]
    return [
        _seconds(point.step_s),
        _per_second(point.step_s, point.steps_per_s),
        _ratio(point.speedup),
        _percent(point.efficiency),
        *(Cell(_UNKNOWN if value is None else number(value)) for value in more),
        Cell(f"{point.runs}"),
    ]


def _forecast_cells(point: "SweepForecast", extras: int) -> list[Cell]:
    rate = _per_second(point.step_s, 1.0 / point.step_s.value)
    cells = [_seconds(point.step_s), rate, _ratio(point.speedup), _percent(point.efficiency)]
    return [*cells, *[Cell(_UNKNOWN)] * (extras + 1)]


def _seconds(interval: Interval[float | None]) -> Cell:
    if interval.low is not None and interval.high is not None and is_undecided(interval.low, interval.high):
        return Cell(INCONCLUSIVE, f"{format_seconds(interval.low)} to {format_seconds(interval.high)}")
    return Cell(*seconds(interval.value, interval.low, interval.high))


def _per_second(step_s: Interval[float | None] | IntervalOverLaunches, rate: float) -> Cell:
    return Cell(_UNKNOWN if is_undecided(step_s.low, step_s.high) else number(rate))


def _ratio(interval: Interval | IntervalOverLaunches) -> Cell:
    return Cell(*times(interval.value, interval.low, interval.high))


def _percent(interval: Interval | IntervalOverLaunches) -> Cell:
    if is_undecided(interval.low, interval.high):
        return Cell(INCONCLUSIVE, f"about {number(100 * interval.value)} %")
    return Cell(*percent(interval.value, interval.low, interval.high))


def _figures(curve: "SweepCurve") -> list[Figure]:
    if len(curve.points) + len(curve.forecast) < 2:  # noqa: PLR2004 - a line
        return []
    name = f", {curve.name}" if curve.name else ""
    pictures = (("Speed-up", "speedup", "speed-up"), ("Efficiency", "efficiency", "efficiency (%), from 0"))
    return [
        picture(f"{title} against workers{name}", _scaling_chart(curve, value, axis), curve.sentence)
        for title, value, axis in pictures
    ]


def _scaling_chart(curve: "SweepCurve", value: str, title: str) -> Spec:
    """Return measured points, the band of the forecast, the ideal line and the knees over numbers of workers."""
    rows: list[Spec] = []
    first = curve.points[0].workers
    for kind, points in (("measured", curve.points), ("forecast", curve.forecast)):
        for point in points:
            interval: Interval | IntervalOverLaunches = getattr(point, value)
            ends = {"low": interval.low, "high": interval.high}
            rows.append({"kind": kind, "workers": point.workers, "value": interval.value, **ends})
    joint = next(row for row in reversed(rows) if row["kind"] == "measured")
    rows.append({**joint, "kind": "forecast", "low": joint["value"], "high": joint["value"]})
    counts = sorted({int(row["workers"]) for row in rows})
    ideal = [
        {"kind": "ideal", "workers": count, "value": count / first if value == "speedup" else 1.0} for count in counts
    ]
    knees = [knee["workers"]["value"] for knee in curve.knees or () if knee["measure"] == "efficiency"]
    lines = [{"kind": "knee", "workers": place} for place in knees if place is not None and place <= counts[-1]]
    x = workers_axis(counts)
    axis: Spec = {"axis": {"tickCount": 6, "format": "%"} if value == "efficiency" else {"tickCount": 6}}
    by_doublings = value == "speedup" and x["scale"].get("type") == "log"
    axis |= axis_by_doublings(title, [*rows, *ideal]) if by_doublings else axis_from_zero(title, [*rows, *ideal])
    y = {"field": "value", "type": "quantitative", **axis}
    ranged = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    layers: list[Spec] = [
        _layer("forecast", {"type": "area", "opacity": 0.25, "color": _FORECAST}, ranged),
        _layer("forecast", {"type": "line", "color": _FORECAST, "strokeDash": [7, 3]}, {"x": x, "y": y}),
        _layer("ideal", {"type": "line", "color": _IDEAL, "strokeDash": [3, 3]}, {"x": x, "y": y}),
        _layer("knee", {"type": "rule", "color": _IDEAL, "strokeDash": [1, 2]}, {"x": x}),
        _layer("measured", {"type": "line", "color": _MEASURED}, {"x": x, "y": y}),
        _layer("measured", {"type": "rule", "color": _MEASURED, "strokeWidth": 2.5}, ranged),
        _layer(
            "measured",
            {"type": "point", "filled": True, "opacity": 1, "size": 80, "color": _MEASURED},
            {"x": x, "y": y},
        ),
    ]
    return chart(layers, [*rows, *ideal, *lines])


def _layer(kind: str, mark: Spec, encoding: Spec) -> Spec:
    return {"transform": [{"filter": f"datum.kind == '{kind}'"}], "mark": mark, "encoding": encoding}
