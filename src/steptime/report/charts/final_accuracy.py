"""What trainings reached in the end, against the global batch or against the mean staleness of their updates."""

from collections.abc import Sequence

from steptime.report.charts.chart import Spec, chart
from steptime.report.charts.marks import Marks


def batch_lines(rows: Sequence[Spec], marks: Marks, measure: Spec) -> Spec:
    """Return final values against the global batch, a line per series.

    Args:
        rows: each with ``name``, ``x`` (samples), ``value``, and ``low`` and ``high``, which are None where there is
            no interval.
        marks: what each series looks like.
        measure: ``ACCURACY`` or ``LOSS`` of the learning curves.
    """
    batches = sorted({row["x"] for row in rows})
    x = {
        "title": "global batch (samples, log scale)",
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [batches[0] * 0.85, batches[-1] * 1.18]},
        "axis": {"values": batches, "format": "d", "grid": False},
    }
    return _points(rows, marks, x, measure, joined=True)


def staleness_points(rows: Sequence[Spec], marks: Marks, measure: Spec) -> Spec:
    """Return final values against mean staleness; rows as for ``batch_lines``, with updates as ``x``."""
    x = {
        "title": "mean staleness (updates of other workers)",
        "scale": {"domain": [0.0, 1.1 * max(row["x"] for row in rows) or 1.0], "nice": False},
        "axis": {"tickCount": 6, "format": ",~f", "grid": False},
    }
    return _points(rows, marks, x, measure, joined=False)


def _points(rows: Sequence[Spec], marks: Marks, across: Spec, measure: Spec, *, joined: bool) -> Spec:
    x = {"field": "x", "type": "quantitative", **across}
    y = {"field": "value", "type": "quantitative", "scale": {"zero": False}, **measure}
    looks = marks.encodings(list(dict.fromkeys(row["name"] for row in rows)), "color", "shape")
    colour = {"color": looks["color"]}
    line: Spec = {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y, **colour}}
    layers: list[Spec] = [
        *([line] if joined else []),
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 80},
            "encoding": {"x": x, "y": y, **looks},
        },
    ]
    return chart(layers, rows)
