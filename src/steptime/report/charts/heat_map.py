"""How long each worker computed in each of some steps: a slow worker is a dark line, a pause a dark spot."""

from collections.abc import Sequence

from steptime.report.charts.chart import Spec, chart

_SHADES = ["#EEF3F8", "#CFE1EF", "#A3C9E2", "#6FA8D1", "#3D82B8", "#155A93", "#08306B"]
_ROW = 24


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
    return chart([layer], cells, height=_ROW * len(names))
