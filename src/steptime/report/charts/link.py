"""Time against the size of a message, with the line that was fitted; both axes are logarithmic."""

from collections.abc import Sequence

from steptime.report.charts.chart import Spec, chart, round_ticks
from steptime.report.charts.marks import Marks

_SIZE = (
    "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : "
    "datum.value >= 1024 ? datum.value / 1024 + ' KiB' : datum.value + ' B'"
)
_ENOUGH = 3
"""Powers of ten, from which on they are ticks enough."""
_REACH = 1.3
"""How far the axes go beyond the outermost points."""


def link_chart(points: Sequence[Spec], lines: Sequence[Spec], marks: Marks) -> Spec:
    """Return the chart.

    Args:
        points: a size of a back end each: ``name``, ``bytes``, and in milliseconds ``value``, ``low`` and ``high``
            (which may be None).
        lines: points of the fitted lines: ``name``, ``bytes`` and ``value``.
        marks: what each name looks like.
    """
    names = list(dict.fromkeys(point["name"] for point in points))
    sizes = sorted({point["bytes"] for point in points})
    times = [each["value"] for each in (*points, *lines)]
    x = {
        "field": "bytes",
        "type": "quantitative",
        "title": "size of a message (log scale)",
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [sizes[0] / _REACH, sizes[-1] * _REACH]},
        "axis": {"values": sizes, "labelExpr": _SIZE, "grid": False},
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "title": "time (ms, log scale)",
        "scale": {"type": "log", "nice": False, "domain": [min(times) / _REACH, max(times) * _REACH], "clamp": True},
        "axis": {"format": ",~g", "values": _ticks(min(times), max(times))},
    }
    looks = marks.encodings(names, "color", "shape")
    colour = {"color": looks["color"]}
    layers: list[Spec] = [
        {
            "data": {"values": list(lines)},
            "mark": {"type": "line", "strokeWidth": 1.5, "clip": True},
            "encoding": {"x": x, "y": y, **colour},
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70},
            "encoding": {"x": x, "y": y, **looks},
        },
    ]
    return chart(layers, points)


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and 2 and 5 times these where few would be seen."""
    ticks = [each for each in round_ticks(low / _REACH, high * _REACH) if f"{each:e}"[0] in "125"]
    tens = [each for each in ticks if f"{each:e}"[0] == "1"]
    return tens if len(tens) > _ENOUGH else ticks
