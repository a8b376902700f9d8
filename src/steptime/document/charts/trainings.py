"""Trainings: what they reach over time and in the end, and the learning rates of their schedules."""

from collections.abc import Sequence

from steptime.document.charts.chart import Marks, Spec, chart, share_axis, with_dashes

ACCURACY: Spec = {"title": "validation accuracy (%)", "axis": {"format": "~%", "tickCount": 6}}
LOSS: Spec = {"title": "validation loss", "axis": {"format": ",~f", "tickCount": 6}}


def learning_curves(rows: Sequence[Spec], series: Sequence[str], marks: Marks, *, x: str, measure: Spec) -> Spec:
    """Return what trainings reached by epochs or seconds: a line per trial, with a band over its seeds.

    Args:
        rows: points of the lines, each with ``name`` (the label of its series), ``x``, ``value``, and ``low`` and
            ``high``, which are None if there is no interval.
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


def batch_lines(rows: Sequence[Spec], marks: Marks, measure: Spec) -> Spec:
    """Return final values against the global batch, a line per series.

    Args:
        rows: each with ``name``, ``x`` (samples), ``value``, and ``low`` and ``high``, which are None if there is
            no interval.
        marks: what each series looks like.
        measure: ``ACCURACY`` or ``LOSS``.
    """
    batches = sorted({row["x"] for row in rows})
    x = {
        "title": "global batch (samples, log scale)",
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [batches[0] * 0.85, batches[-1] * 1.18]},
        "axis": {"values": batches, "format": "d", "grid": False},
    }
    return _final_points(rows, marks, x, measure, joined=True)


def staleness_points(rows: Sequence[Spec], marks: Marks, measure: Spec) -> Spec:
    """Return final values against mean staleness; rows as for ``batch_lines``, with updates as ``x``."""
    x = {
        "title": "mean staleness (updates of other workers)",
        "scale": {"domain": [0.0, 1.1 * max(row["x"] for row in rows) or 1.0], "nice": False},
        "axis": {"tickCount": 6, "format": ",~f", "grid": False},
    }
    return _final_points(rows, marks, x, measure, joined=False)


def _final_points(rows: Sequence[Spec], marks: Marks, across: Spec, measure: Spec, *, joined: bool) -> Spec:
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


def rate_lines(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return schedules of the learning rate: its share over the epochs.

    Args:
        rows: points of the lines, each with ``name``, ``epoch`` (from 0, not whole within an epoch) and ``share`` (0
            to 1, of the learning rate).
        marks: what each schedule looks like.
    """
    layer = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "epoch",
                "type": "quantitative",
                "title": "epochs",
                "scale": {"domain": [0.0, max(row["epoch"] for row in rows)], "nice": False},
                "axis": {"tickCount": 6, "format": ",~f", "grid": False},
            },
            "y": share_axis("share of the learning rate (%)"),
            "order": {"field": "epoch"},
            **marks.encodings(list(dict.fromkeys(row["name"] for row in rows)), "color", "strokeDash"),
        },
    }
    return with_dashes(chart([layer], rows))
