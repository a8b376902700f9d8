"""Where the time of a step goes: phases of a trial, their overlap, and a heat map of steps by worker.

From one trial's step to another's: what each phase adds or takes away, one below the other.
"""

from collections.abc import Sequence

from steptime.document.charts.chart import GREY, WIDTH, Spec, chart
from steptime.document.charts.rows import BAR, BELOW, HEIGHT, Y, headings
from steptime.phases import BY_NAME, HIDDEN

_SHADES = ["#EEF3F8", "#CFE1EF", "#A3C9E2", "#6FA8D1", "#3D82B8", "#155A93", "#08306B"]
_CELL = 24


def heat_chart(cells: Sequence[Spec], domain: tuple[float, float], unit: str) -> Spec:
    """Return the map.

    Args:
        cells: a step of a worker each, with ``name`` (of the worker), ``step`` (from 0) and ``time`` in ``unit``.
        domain: the times of the lightest and the darkest shade; what is beyond has these.
        unit: of the times, in letters.
    """
    names = list(dict.fromkeys(cell["name"] for cell in cells))
    low, high = domain
    width = (high - low) / len(_SHADES)
    edges = [low + width * number for number in range(1, len(_SHADES))]
    layer = {
        "transform": [{"calculate": "datum.step + 1", "as": "next"}],
        "mark": {"type": "rect", "stroke": None},
        "encoding": {
            "x": {
                "field": "step",
                "type": "quantitative",
                "title": "step",
                "scale": {"nice": False, "zero": True},
                "axis": {"tickCount": 6, "tickMinStep": 1, "format": ",~f", "grid": False},
            },
            "x2": {"field": "next"},
            "y": {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 190}},
            "color": {
                "field": "time",
                "type": "quantitative",
                "scale": {"type": "threshold", "domain": edges, "range": _SHADES},
                "legend": {"type": "symbol", "title": f"computation ({unit})", "columns": 3, "format": ".3~r"},
            },
        },
    }
    return chart([layer], cells, height=_CELL * len(names))


COVERED, EXPOSED = "covered by computation", "exposed"


def overlap_chart(rows: Sequence[Spec], unit: str) -> Spec:
    """Return the chart.

    Args:
        rows: a trial each: ``name`` (different in each), ``shown`` (its covered share in sentences), and in ``unit``
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


_LETTER = 6.5
"""Pixels of a letter, on average."""
_ROOM = 1.2
"""The axis ends at the longest step times this; intervals that go further are cut there."""
_ROW, _LANE = 40, 5
"""Pixels of a row without its intervals, and of the interval of one phase."""


def phases_chart(rows: Sequence[Spec], parts: Sequence[Spec], titles: dict[str, str], unit: str) -> Spec:
    """Return the chart.

    Args:
        rows: a trial each, with ``name`` (different in each) and ``shown`` (its step time in sentences).
        parts: the known phases of all trials in their order: ``name`` of the trial, ``phase``, and in ``unit``
            ``value``, ``low`` and ``high`` (which may be None).
        titles: of the phases to show, in their order.
        unit: of the times, in letters.
    """
    placed = [{**part, "title": titles[part["phase"]]} for part in _placed(parts)]
    ends = [part[end] for part in placed for end in ("start", "end")]
    x = {
        "type": "quantitative",
        "title": f"time of a step ({unit}), from 0",
        "scale": {"domain": [min(0.0, *ends), _ROOM * max(ends)], "nice": False, "clamp": True},
        "axis": {"tickCount": 6, "format": ",~f"},
    }
    height = _ROW + _LANE * len(titles)
    up = height / 2
    layers: list[Spec] = [
        *headings(rows, round(up - 9)),
        {
            "data": {"values": placed},
            "mark": {"type": "bar", "height": 14, "yOffset": 27 - up},
            "encoding": {
                "y": Y,
                "x": {**x, "field": "start"},
                "x2": {"field": "end"},
                "color": {
                    "field": "title",
                    "type": "nominal",
                    "scale": {
                        "domain": list(titles.values()),
                        "range": [BY_NAME[name].colour for name in titles],
                    },
                    "legend": {"columns": 3, "symbolType": "square", "labelLimit": WIDTH / 3 - 20},
                },
            },
        },
    ]
    layers.append(_words(placed, x, 27 - up))
    layers += [
        _interval([part for part in placed if part["phase"] == name], x, 38 - up + _LANE * lane, BY_NAME[name].colour)
        for lane, name in enumerate(titles)
    ]
    return chart(layers, rows, height=height * len(rows))


def _placed(parts: Sequence[Spec]) -> list[Spec]:
    """Return parts one behind the other, negative ones to the left of 0, with the ends of their intervals."""
    reached: dict[tuple[str, bool], float] = {}
    placed = []
    for part in parts:
        key = (part["name"], part["value"] < 0.0)
        start = reached.get(key, 0.0)
        end = reached[key] = start + part["value"]
        known = part["low"] is not None and part["high"] is not None
        bounds = {
            "from": end + part["low"] - part["value"] if known else None,
            "to": end + part["high"] - part["value"] if known else None,
        }
        placed.append({"name": part["name"], "phase": part["phase"], "start": start, "end": end, **bounds})
    return placed


def _words(placed: Sequence[Spec], x: Spec, offset: float) -> Spec:
    """Return the names of the parts that have room for theirs: a colour alone is not enough."""
    low, high = x["scale"]["domain"]
    room = WIDTH / (high - low) / _LETTER
    wide = [part for part in placed if abs(part["end"] - part["start"]) * room > len(part["title"]) + 1]
    middles = [
        {**part, "middle": (part["start"] + part["end"]) / 2, "ink": BY_NAME[part["phase"]].ink} for part in wide
    ]
    return {
        "data": {"values": middles},
        "mark": {"type": "text", "fontSize": 11, "yOffset": offset},
        "encoding": {
            "y": Y,
            "x": {**x, "field": "middle"},
            "text": {"field": "title"},
            "color": {"field": "ink", "type": "nominal", "scale": None},
        },
    }


def _interval(parts: Sequence[Spec], x: Spec, offset: float, colour: str) -> Spec:
    return {
        "data": {"values": [part for part in parts if part["from"] is not None]},
        "mark": {"type": "rule", "strokeWidth": 2.5, "yOffset": offset, "color": colour},
        "encoding": {"y": Y, "x": {**x, "field": "from"}, "x2": {"field": "to"}},
    }


_LONGER, _SHORTER, _REST = "#D55E00", "#009E73", "#B8BFC7"
_GAP_ROW, _ABOVE, _BELOW = 34, 8, 8
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
    placed = list(_placed_bars(rows))
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
    return chart(layers, placed, height=_GAP_ROW * len(placed))


def _placed_bars(rows: Sequence[Spec]) -> list[Spec]:
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
