"""From one trial's step to another's: what each phase adds or takes away, one below the other."""

from collections.abc import Sequence

from steptime.report.charts.chart import GREY, Spec, chart
from steptime.report.charts.rows import Y, headings

_LONGER, _SHORTER, _REST = "#D55E00", "#009E73", "#B8BFC7"
_ROW, _ABOVE, _BELOW = 34, 8, 8
"""Pixels of a row, and from its middle to its letters and to its bar."""


def gap_chart(rows: Sequence[Spec], unit: str) -> Spec:
    """Return the waterfall.

    Args:
        rows: the first trial's step, the phases, and the second trial's step, each with ``name`` (different in each),
            ``shown`` (its number in sentences), ``value``, ``low``, ``high`` (which may be None) in ``unit``, and
            ``kind``: ``step``, ``phase`` or ``rest``. The values of phases and rest are differences, which lead from
            the first step to the second.
        unit: of the times, in letters.
    """
    placed = list(_placed(rows))
    reached = [row[end] for row in placed for end in ("start", "end")]
    room = 0.35 * (max(reached) - min(reached)) or 0.05 * max(reached)
    low = max(0.0, min(reached) - room)
    x = {
        "type": "quantitative",
        "title": f"time of a step ({unit}), {'axis not ' if low else ''}from 0",
        "scale": {"domain": [low, max(reached) + room], "nice": False, "clamp": True},
        "axis": {"tickCount": 5, "format": ",~f"},
    }
    colour = {"field": "colour", "type": "nominal", "scale": None}
    layers: list[Spec] = [
        *headings(placed, _ABOVE),
        {
            "transform": [{"filter": "datum.kind != 'step'"}],
            "mark": {"type": "bar", "height": 11, "yOffset": _BELOW},
            "encoding": {"y": Y, "x": {**x, "field": "start"}, "x2": {"field": "end"}, "color": colour},
        },
        {
            "transform": [{"filter": "isValid(datum.from)"}],
            "mark": {"type": "rule", "strokeWidth": 1.5, "yOffset": _BELOW, "color": GREY},
            "encoding": {"y": Y, "x": {**x, "field": "from"}, "x2": {"field": "to"}},
        },
        {
            "mark": {"type": "tick", "thickness": 3, "size": 15, "yOffset": _BELOW},
            "encoding": {"y": Y, "x": {**x, "field": "end"}, "color": colour},
        },
    ]
    return chart(layers, placed, height=_ROW * len(placed))


def _placed(rows: Sequence[Spec]) -> list[Spec]:
    """Return rows with where each begins and ends; a part begins where the one above it ended."""
    at, placed = 0.0, []
    for row in rows:
        start = row["value"] if row["kind"] == "step" else at
        at = row["value"] if row["kind"] == "step" else at + row["value"]
        known = row["low"] is not None and row["high"] is not None
        placed.append(
            {
                "name": row["name"],
                "shown": row["shown"],
                "kind": row["kind"],
                "start": start,
                "end": at,
                "from": at + row["low"] - row["value"] if known else None,
                "to": at + row["high"] - row["value"] if known else None,
                "colour": _colour(row),
            }
        )
    return placed


def _colour(row: Spec) -> str:
    if row["kind"] == "step":
        return "#1b1f24"
    if row["kind"] == "rest" or not row["value"]:
        return _REST
    return _LONGER if row["value"] > 0.0 else _SHORTER
