"""Throughput of every trial of a group, from zero, with its interval."""

from collections.abc import Sequence

from steptime.report.charts.drawing import Spec
from steptime.report.charts.rows import BAR, Y, row_chart


def throughput_bars(rows: Sequence[Spec]) -> Spec:
    """Return the chart; rows as for ``row_chart``, in samples per second."""
    x = {
        "type": "quantitative",
        "title": "throughput (samples/s), from 0",
        "scale": {"zero": True, "nice": True},
        "axis": {"tickCount": 5, "format": ",~f"},
    }
    colour = {"field": "colour", "type": "nominal", "scale": None}
    bars = {
        "mark": {**BAR, "opacity": 0.22},
        "encoding": {"y": Y, "x": {**x, "field": "value", "stack": None}, "color": colour},
    }
    return row_chart(rows, [bars], x)
