"""Cumulative distributions: the share of steps that took at most so long, and of updates that came so late."""

from collections.abc import Sequence

from steptime.report.charts.chart import FEWEST_TICKS, SHARES, Spec, chart, round_ticks, share_axis, with_dashes
from steptime.report.charts.marks import Marks

_FAR = 4.0
"""Longest step over shortest from which a linear axis would press most curves into a corner."""


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
    logarithmic = domain[1] > _FAR * domain[0] and len(ticks) >= FEWEST_TICKS
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
