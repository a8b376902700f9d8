"""Predicted efficiency against workers: a line per configuration with its band, beside what is published."""

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
