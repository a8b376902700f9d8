"""Charts of trials: a line for throughput, one for the step time over the best one, and cumulative distributions.

Name and number are above the interval, so that names of any length fit.

Throughput and efficiency against the number of workers, with the ideal line, and predictions with their bands.
"""

from collections.abc import Sequence
from math import ceil, floor, log2

from steptime.document.charts.chart import (
    FEWEST_TICKS,
    GREY,
    SHARES,
    WIDTH,
    Marks,
    Spec,
    chart,
    round_ticks,
    share_axis,
    with_dashes,
)

HEIGHT = 40
"""Pixels of a trial's line."""
BELOW = 9
"""Pixels from the middle of a line down to its interval; its name is as far above."""
_NUMBER_WIDTH = 7
"""Pixels of a letter, at most."""


def row_chart(rows: Sequence[Spec], under: Sequence[Spec], x: Spec) -> Spec:
    """Return the chart.

    Args:
        rows: best first, each with ``name`` (different in each), ``shown`` (its number in sentences), ``value``,
            ``low`` and ``high`` (which may be None), and ``colour``.
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


_FAR = 3.0
"""A ratio from which a linear axis would press the ties together."""
_WIDE = 4.0
"""Longest step over shortest from which a linear axis would press most curves into a corner."""


def ratio_chart(rows: Sequence[Spec]) -> Spec:
    """Return the chart; rows as for ``row_chart``, with ratios for numbers."""
    ends = [end for row in rows for end in (row["low"], row["high"], row["value"]) if end is not None]
    low, high = min(1.0, *ends), max(1.0, *ends)
    title = "slowdown vs best (x), axis not from 0"
    scale: Spec = {"zero": False, "nice": True}
    axis: Spec = {"tickCount": 6}
    if high > _FAR:
        title = "slowdown vs best (x, log scale)"
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


def throughput_bars(rows: Sequence[Spec]) -> Spec:
    """Return the chart; rows as for ``row_chart``, in samples per second."""
    x = {
        "type": "quantitative",
        **axis_from_zero("throughput (samples/s), from 0", rows),
        "axis": {"tickCount": 5, "format": ",~f"},
    }
    colour = {"field": "colour", "type": "nominal", "scale": None}
    bars = {
        "mark": {**BAR, "opacity": 0.22},
        "encoding": {"y": Y, "x": {**x, "field": "value", "stack": None}, "color": colour},
    }
    return row_chart(rows, [bars], x)


def distribution_chart(rows: Sequence[Spec], unit: str, domain: tuple[float, float], marks: Marks) -> Spec:
    """Return the cumulative distribution of step times.

    Args:
        rows: points of the curves, each with ``name`` (in the legend), ``series`` (the name that ``marks`` knows),
            ``time`` (in ``unit``) and ``share`` (0 to 1).
        unit: of the times, in letters.
        domain: shortest and longest time to show, positive.
        marks: what each series looks like.
    """
    series = {row["name"]: row["series"] for row in rows}
    ticks = round_ticks(*domain)
    logarithmic = domain[1] > _WIDE * domain[0] and len(ticks) >= FEWEST_TICKS
    layer = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "time",
                "type": "quantitative",
                "title": f"step time ({unit}), {'log scale' if logarithmic else 'axis not from 0'}",
                "scale": {"type": "log" if logarithmic else "linear", "nice": False, "domain": list(domain)},
                "axis": {"values": ticks, "format": ",~f"} if logarithmic else {"tickCount": 6, "format": ",~f"},
            },
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of steps (%)",
                "axis": SHARES,
            },
            "order": {"field": "share"},
            **marks.encodings(list(series.values()), "color", "strokeDash", labels=list(series)),
        },
    }
    return with_dashes(chart([layer], rows))


def staleness_chart(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return the cumulative distribution of how many updates of others came before an update.

    Args:
        rows: points of the curves, each with ``name``, ``late`` (updates, from 0) and ``share`` (0 to 1).
        marks: what each series looks like.
    """
    layer = {
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "late",
                "type": "quantitative",
                "title": "staleness (updates of other workers)",
                "axis": {"tickMinStep": 1, "format": ",~f"},
            },
            "y": share_axis("share of updates (%)"),
            "order": {"field": "late"},
            **marks.encodings(list(dict.fromkeys(row["name"] for row in rows)), "color", "strokeDash"),
        },
    }
    return with_dashes(chart([layer], rows))


def prediction_bands(rows: Sequence[Spec], published: Sequence[Spec], marks: Marks, axis: Spec | None = None) -> Spec:
    """Return the chart.

    Args:
        rows: points of the lines, each with ``name``, ``workers``, ``value``, and ``low`` and ``high``, which are None
            without an interval.
        published: points with ``workers`` and ``value`` of published or measured curves; diamonds.
        marks: what each name looks like.
        axis: the vertical one, of ``value``; that of efficiencies (1 is ideal) if None.
    """
    workers = sorted({row["workers"] for row in [*rows, *published]})
    x = {
        "field": "workers",
        "type": "quantitative",
        "title": "workers (log scale)",
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [workers[0] * 0.85, workers[-1] * 1.18]},
        "axis": {"values": workers, "format": "d", "grid": False},
    }
    y = axis or {
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
            "transform": [predicted, {"filter": "isValid(datum.value)"}],
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


_WIDE_PAIR = 16
"""More workers than this many times the fewest are shown by doublings."""


def throughput_lines(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return throughput against workers.

    Args:
        rows: one per trial and one per point of an ideal line: ``name``, ``workers``, ``value``, ``low``, ``high``
            in samples per second, and ``ideal``, which is true on the points of the line that perfect scaling of
            the trial's baseline would follow.
        marks: what each name looks like.
    """
    y = {"title": "throughput (samples/s), from 0", "axis": {"tickCount": 6, "format": ",~f"}}
    return _chart(rows, marks, y)


def efficiency_lines(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return efficiency against workers; rows as for ``throughput_lines``, with shares instead of rates."""
    y = {"title": "efficiency (%), from 0", "axis": {"tickCount": 6, "format": "%"}}
    return _chart(rows, marks, y)


def _chart(rows: Sequence[Spec], marks: Marks, axis: Spec) -> Spec:
    names = list(dict.fromkeys(row["name"] for row in rows))
    x = workers_axis(sorted({row["workers"] for row in rows}))
    y = {"field": "value", "type": "quantitative", **axis, **axis_from_zero(axis["title"], rows)}
    looks = marks.encodings(names, "color", "shape")
    colour = {"color": looks["color"]}
    measured = {"filter": "!datum.ideal"}
    layers = [
        {
            "transform": [{"filter": "datum.ideal"}],
            "mark": {"type": "line", "strokeDash": [3, 3], "strokeWidth": 1.2, "opacity": 0.8},
            "encoding": {"x": x, "y": y, "detail": {"field": "name"}, "color": {"value": GREY}},
        },
        {
            "transform": [measured],
            "mark": {"type": "line", "strokeWidth": 1.8},
            "encoding": {"x": x, "y": y, **colour},
        },
        {
            "transform": [measured, {"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {
            "transform": [measured],
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 80},
            "encoding": {"x": x, "y": y, **looks},
        },
    ]
    return chart(layers, rows)


_BEYOND = 1.5
"""Times the largest value that an axis reaches for intervals."""


def axis_from_zero(title: str, rows: Sequence[Spec]) -> Spec:
    """Return title and scale of an axis that ends near the values, with a note where intervals reach beyond it."""
    values = [row["value"] for row in rows if row.get("value") is not None]
    ends = [row["high"] for row in rows if row.get("high") is not None]
    edge = _BEYOND * max(values, default=1.0)
    if max(ends, default=0.0) <= edge:
        return {"title": title, "scale": {"zero": True}}
    return {"title": f"{title}; intervals reach beyond", "scale": {"domain": [0.0, edge], "nice": False, "clamp": True}}


def axis_by_doublings(title: str, rows: Sequence[Spec]) -> Spec:
    """Return the axis of speed-ups by doublings, on which the ideal line is straight where the workers double, too.

    An interval may reach so far below all speed-ups that it would leave no room for them.
    """
    values = [row["value"] for row in rows]
    ends = [row["low"] for row in rows if row.get("low")]
    least = max(min([*values, *ends]), min(values) / 4.0)
    marks = [2.0**power for power in range(floor(log2(least)), ceil(log2(max(values))) + 1)]
    scale = {"type": "log", "base": 2, "nice": False, "domain": [marks[0], marks[-1]], "clamp": True}
    return {"title": f"{title} (log scale)", "scale": scale, "axis": {"values": marks, "format": "~r"}}


def workers_axis(ticks: Sequence[int]) -> Spec:
    """Return the horizontal axis of numbers of workers, by doublings where these are far apart."""
    first, last = ticks[0], ticks[-1]
    x = {"field": "workers", "type": "quantitative", "axis": {"values": list(ticks), "format": "d", "grid": False}}
    if last > _WIDE_PAIR * first:
        scale = {"type": "log", "base": 2, "nice": False, "domain": [first * 0.8, last * 1.25]}
        return {**x, "title": "workers (log scale)", "scale": scale}
    return {**x, "title": "workers", "scale": {"nice": False, "domain": [0, last + 0.15 * last]}}
