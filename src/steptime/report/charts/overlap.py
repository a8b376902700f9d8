"""How much communication computation covers: what is covered, and what a step takes longer for it."""

from collections.abc import Sequence

from steptime.phases import BY_NAME, HIDDEN
from steptime.report.charts.chart import GREY, Spec, chart
from steptime.report.charts.rows import BAR, BELOW, HEIGHT, Y, headings

COVERED, EXPOSED = "covered by computation", "exposed"


def overlap_chart(rows: Sequence[Spec], unit: str) -> Spec:
    """Return the chart.

    Args:
        rows: a trial each: ``name`` (different in each), ``shown`` (its covered share in words), and in ``unit``
            ``covered`` with ``low`` and ``high`` (which may be None), and ``exposed``.
        unit: of the times, in letters.
    """
    x = {
        "type": "quantitative",
        "title": f"communication of a step ({unit}), from 0",
        "scale": {"zero": True},
        "axis": {"tickCount": 6, "format": ",~f"},
    }
    parts = [
        {"name": row["name"], "part": part, "start": start, "end": end}
        for row in rows
        for part, start, end in (
            (COVERED, 0.0, row["covered"]),
            (EXPOSED, row["covered"], row["covered"] + row["exposed"]),
        )
    ]
    look = {
        "field": "part",
        "type": "nominal",
        "scale": {"domain": [COVERED, EXPOSED], "range": [HIDDEN.colour, BY_NAME["comm_exposed"].colour]},
        "legend": {"columns": 2, "symbolType": "square"},
    }
    layers: list[Spec] = [
        *headings(rows),
        {
            "data": {"values": parts},
            "mark": BAR,
            "encoding": {"y": Y, "x": {**x, "field": "start"}, "x2": {"field": "end"}, "color": look},
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2, "yOffset": BELOW, "color": GREY},
            "encoding": {"y": Y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
    ]
    return chart(layers, rows, height=HEIGHT * len(rows))
