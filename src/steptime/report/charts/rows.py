"""Charts with a line per trial: its name and its number above, its interval below; names of any length have room."""

from collections.abc import Sequence

from steptime.report.charts.drawing import GREY, WIDTH, Spec, chart

HEIGHT = 40
"""Pixels of a trial's line."""
BELOW = 9
"""Pixels from the middle of a line down to its interval; its name is as far above."""
_NUMBER_WIDTH = 7
"""Pixels of a letter, at most."""


def row_chart(rows: Sequence[Spec], under: Sequence[Spec], x: Spec) -> Spec:
    """Return the chart.

    Args:
        rows: best first, each with ``name`` (different in each), ``shown`` (its number in words), ``value``, ``low``
            and ``high`` (which may be None), and ``colour``.
        under: layers that are drawn under the intervals.
        x: type, title, scale and axis of the number.
    """
    known = [{"filter": "isValid(datum.low)"}]
    colour = {"field": "colour", "type": "nominal", "scale": None}
    layers = [
        *under,
        *headings(rows),
        {
            "transform": known,
            "mark": {"type": "rule", "strokeWidth": 3, "yOffset": BELOW},
            "encoding": {"y": Y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
        },
        *(
            {
                "transform": known,
                "mark": {"type": "tick", "thickness": 2, "size": 12, "yOffset": BELOW},
                "encoding": {"y": Y, "x": {**x, "field": end}, "color": colour},
            }
            for end in ("low", "high")
        ),
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70, "yOffset": BELOW},
            "encoding": {"y": Y, "x": {**x, "field": "value"}, "color": colour},
        },
    ]
    return chart(layers, rows, height=HEIGHT * len(rows))


def headings(rows: Sequence[Spec], above: int = BELOW) -> list[Spec]:
    """Return the layers that write the name and the number of every row, ``above`` pixels over its middle."""
    numbers = max(len(row["shown"]) for row in rows) * _NUMBER_WIDTH
    return [
        *_text("name", 0, above, align="left", fontWeight="bold", limit=WIDTH - numbers),
        *_text("shown", "width", above, align="right", color=GREY),
    ]


def _text(field: str, x: int | str, above: int, **style: object) -> list[Spec]:
    """Return a text with a white rim, so that grid lines do not run through its letters."""
    encoding = {"y": Y, "x": {"value": x}, "text": {"field": field}}
    mark = {"type": "text", "dy": -above, **style}
    return [
        {"mark": {**mark, "stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}, "encoding": encoding},
        {"mark": mark, "encoding": encoding},
    ]


Y: Spec = {"field": "name", "type": "nominal", "sort": None, "axis": None, "scale": {"padding": 0}}
BAR: Spec = {"type": "bar", "height": 14, "yOffset": BELOW}
"""A bar that lies behind an interval."""
