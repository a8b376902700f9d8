"""How stale updates were: the share of updates that came at most so many updates of others late."""

from collections.abc import Sequence

from steptime.report.charts.chart import SHARES, Spec, chart, with_dashes
from steptime.report.charts.marks import Marks


def staleness_chart(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return the cumulative distribution.

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
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of updates (%)",
                "scale": {"domain": [0.0, 1.0]},
                "axis": SHARES,
            },
            "order": {"field": "late"},
            **marks.encodings(list(dict.fromkeys(row["name"] for row in rows)), "color", "strokeDash"),
        },
    }
    return with_dashes(chart([layer], rows))
