"""What trainings reached by epochs or by seconds: a line per trial, with a band over its seeds."""

from collections.abc import Sequence

from steptime.report.charts.chart import Spec, chart, with_dashes
from steptime.report.charts.marks import Marks

ACCURACY: Spec = {"title": "validation accuracy (%)", "axis": {"format": "~%", "tickCount": 6}}
LOSS: Spec = {"title": "validation loss", "axis": {"format": ",~f", "tickCount": 6}}


def learning_curves(rows: Sequence[Spec], series: Sequence[str], marks: Marks, *, x: str, measure: Spec) -> Spec:
    """Return the chart.

    Args:
        rows: points of the lines, each with ``name`` (the label of its series), ``x``, ``value``, and ``low`` and
            ``high``, which are None where there is no interval.
        series: the names that ``marks`` knows, in the order in which their labels come in ``rows``.
        marks: what each series looks like.
        x: title of the horizontal axis, with its unit.
        measure: ``ACCURACY`` or ``LOSS``.
    """
    labels = list(dict.fromkeys(row["name"] for row in rows))
    across = {
        "field": "x",
        "type": "quantitative",
        "title": x,
        "scale": {"domain": [0.0, max(row["x"] for row in rows)], "nice": False},
        "axis": {"tickCount": 6, "format": ",~f", "grid": False},
    }
    y = {"field": "value", "type": "quantitative", "scale": {"zero": False}, **measure}
    looks = marks.encodings(series, "color", "strokeDash", labels=labels)
    layers: list[Spec] = [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "area", "fillOpacity": 0.16, "strokeWidth": 0},
            "encoding": {"x": across, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": looks["color"]},
        },
        {
            "mark": {"type": "line", "strokeWidth": 1.8},
            "encoding": {"x": across, "y": y, "order": {"field": "x"}, **looks},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 14},
            "encoding": {"x": across, "y": y, "color": looks["color"]},
        },
    ]
    return with_dashes(chart(layers, rows))
