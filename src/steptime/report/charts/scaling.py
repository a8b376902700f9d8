"""Throughput and efficiency against the number of workers, with the ideal line, and predictions with their bands."""

from collections.abc import Sequence

from steptime.report.charts.chart import GREY, Spec, chart, with_dashes
from steptime.report.charts.marks import Marks


def prediction_bands(rows: Sequence[Spec], published: Sequence[Spec], marks: Marks) -> Spec:
    """Return the chart.

    Args:
        rows: points of the lines, each with ``name``, ``workers``, ``value``, and ``low`` and ``high``, which are None
            where there is no interval; efficiencies, 1 is ideal.
        published: points with ``workers`` and ``value`` of published curves; diamonds.
        marks: what each name looks like.
    """
    workers = sorted({row["workers"] for row in [*rows, *published]})
    x = {
        "field": "workers",
        "type": "quantitative",
        "title": "workers (log scale)",
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [workers[0] * 0.85, workers[-1] * 1.18]},
        "axis": {"values": workers, "format": "d", "grid": False},
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "title": "efficiency (%), from 0",
        "scale": {"zero": True},
        "axis": {"tickCount": 6, "format": "%"},
    }
    looks = marks.encodings(list(dict.fromkeys(row["name"] for row in rows)), "color", "strokeDash")
    predicted = {"filter": "!datum.published"}
    layers: list[Spec] = [
        {
            "transform": [predicted, {"filter": "isValid(datum.low)"}],
            "mark": {"type": "area", "fillOpacity": 0.16, "strokeWidth": 0},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": looks["color"]},
        },
        {
            "transform": [predicted],
            "mark": {"type": "line", "strokeWidth": 1.8},
            "encoding": {"x": x, "y": y, **looks},
        },
        {
            "transform": [predicted],
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 30},
            "encoding": {"x": x, "y": y, "color": looks["color"]},
        },
        {
            "transform": [{"filter": "datum.published"}],
            "mark": {"type": "point", "shape": "diamond", "filled": False, "strokeWidth": 2, "size": 90},
            "encoding": {"x": x, "y": y, "color": {"value": GREY}},
        },
    ]
    points = [{**row, "published": False} for row in rows] + [{**row, "published": True} for row in published]
    return with_dashes(chart(layers, points))


_WIDE = 16
"""More workers than this many times the fewest are shown by doublings."""


def throughput_lines(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return throughput against workers.

    Args:
        rows: one per trial and one per point of an ideal line: ``name``, ``workers``, ``value``, ``low``, ``high``
            in samples per second, and ``ideal``, which is true on the points of the line that perfect scaling of
            the trial's baseline would follow.
        marks: what each name looks like.
    """
    y = {"title": "throughput (samples/s), from 0", "scale": {"zero": True}, "axis": {"tickCount": 6, "format": ",~f"}}
    return _chart(rows, marks, y)


def efficiency_lines(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return efficiency against workers; rows as for ``throughput_lines``, with shares instead of rates."""
    y = {"title": "efficiency (%), from 0", "scale": {"zero": True}, "axis": {"tickCount": 6, "format": "%"}}
    return _chart(rows, marks, y)


def _chart(rows: Sequence[Spec], marks: Marks, axis: Spec) -> Spec:
    names = list(dict.fromkeys(row["name"] for row in rows))
    x = _workers(sorted({row["workers"] for row in rows}))
    y = {"field": "value", "type": "quantitative", **axis}
    looks = marks.encodings(names, "color", "shape")
    colour = {"color": looks["color"]}
    measured = {"filter": "!datum.ideal"}
    layers = [
        {
            "transform": [{"filter": "datum.ideal"}],
            "mark": {"type": "line", "strokeDash": [3, 3], "strokeWidth": 1.2, "opacity": 0.8},
            "encoding": {"x": x, "y": y, "detail": {"field": "name"}, "color": {"value": GREY}},
        },
        {
            "transform": [measured],
            "mark": {"type": "line", "strokeWidth": 1.8},
            "encoding": {"x": x, "y": y, **colour},
        },
        {
            "transform": [measured, {"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {
            "transform": [measured],
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 80},
            "encoding": {"x": x, "y": y, **looks},
        },
    ]
    return chart(layers, rows)


def _workers(ticks: Sequence[int]) -> Spec:
    first, last = ticks[0], ticks[-1]
    x = {"field": "workers", "type": "quantitative", "axis": {"values": list(ticks), "format": "d", "grid": False}}
    if last > _WIDE * first:
        scale = {"type": "log", "base": 2, "nice": False, "domain": [first * 0.8, last * 1.25]}
        return {**x, "title": "workers (log scale)", "scale": scale}
    return {**x, "title": "workers", "scale": {"nice": False, "domain": [0, last + 0.15 * last]}}
