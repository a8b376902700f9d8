"""Learning-rate schedules: the share of the learning rate over the epochs."""

from collections.abc import Sequence

from steptime.report.charts.chart import SHARES, Spec, chart, with_dashes
from steptime.report.charts.marks import Marks


def rate_lines(rows: Sequence[Spec], marks: Marks) -> Spec:
    """Return the chart.

    Args:
        rows: points of the lines, each with ``name``, ``epoch`` (from 0, not whole within an epoch) and ``share`` (0
            to 1, of the learning rate).
        marks: what each schedule looks like.
    """
    layer = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "epoch",
                "type": "quantitative",
                "title": "epochs",
                "scale": {"domain": [0.0, max(row["epoch"] for row in rows)], "nice": False},
                "axis": {"tickCount": 6, "format": ",~f", "grid": False},
            },
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of the learning rate (%)",
                "scale": {"domain": [0.0, 1.0]},
                "axis": SHARES,
            },
            "order": {"field": "epoch"},
            **marks.encodings(list(dict.fromkeys(row["name"] for row in rows)), "color", "strokeDash"),
        },
    }
    return with_dashes(chart([layer], rows))
