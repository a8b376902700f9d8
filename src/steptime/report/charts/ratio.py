"""Step time of every trial of a group divided by the best's: an interval that touches 1 shows no difference."""

from collections.abc import Sequence

from steptime.report.charts.drawing import FEWEST_TICKS, GREY, Spec, round_ticks
from steptime.report.charts.rows import row_chart

_FAR = 3.0
"""A ratio from which a linear axis would press the ties together."""


def ratio_chart(rows: Sequence[Spec]) -> Spec:
    """Return the chart; rows as for ``row_chart``, with ratios for numbers."""
    ends = [end for row in rows for end in (row["low"], row["high"], row["value"]) if end is not None]
    low, high = min(1.0, *ends), max(1.0, *ends)
    title = "time against best (x), axis not from 0"
    scale: Spec = {"zero": False, "nice": True}
    axis: Spec = {"tickCount": 6}
    if high > _FAR:
        title = "time against best (x, log scale)"
        ticks = round_ticks(low, high)
        scale = {"type": "log", "nice": False, "domain": [low * 0.95, high * 1.05]}
        axis = {"values": ticks} if len(ticks) >= FEWEST_TICKS else {}
    x = {"type": "quantitative", "title": title, "scale": scale, "axis": {**axis, "format": ",~f"}}
    as_fast = {
        "data": {"values": [{"best": 1.0}]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": GREY},
        "encoding": {"x": {**x, "field": "best"}},
    }
    return row_chart(rows, [as_fast], x)
