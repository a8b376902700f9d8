"""The network benchmark on a page: a table and charts for each place where messages were timed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from steptime.measurements.net.form import NetRow, NetSummary
from steptime.measurements.net.line import Line, line_points
from steptime.report.charts.chart import Spec
from steptime.report.charts.link import link_chart
from steptime.report.charts.marks import Marks
from steptime.report.figures import Figure, parts, picture
from steptime.report.links import OperationRow, conditions, operation_row
from steptime.report.number_format import count


@dataclass(frozen=True)
class LinkGroup:
    """What was timed under the same conditions."""

    title: str
    rows: list[OperationRow]
    figures: list[Figure]


def link_groups(found: NetSummary) -> list[LinkGroup]:
    """Return a group for each kind of links, in the order of the summary."""
    marks = Marks(list(dict.fromkeys((row.back_end, row.back_end) for row in found.rows)))
    return [
        LinkGroup(f"Messages {title}", [operation_row(row) for row in rows], list(_figures(title, rows, marks)))
        for title, rows in ((title, list(group)) for title, group in groupby(found.rows, conditions))
    ]


def _figures(where: str, rows: Sequence[NetRow], marks: Marks) -> Iterator[Figure]:
    drawn = [row for row in rows if row.sizes]
    for operation, workers, servers in dict.fromkeys((row.operation, row.workers, row.servers) for row in drawn):
        same = [row for row in drawn if (row.operation, row.workers, row.servers) == (operation, workers, servers)]
        title = f"{operation}, {count(workers, 'worker')}" + (f", {count(servers, 'server')}" if servers else "")
        for part in parts(same):
            points = [point for row in part for point in _points(row)]
            lines = [point for row in part for point in _line(row)]
            yield picture(title, link_chart(points, lines, marks), where)


def _points(row: NetRow) -> Iterator[Spec]:
    for size in row.sizes:
        time = size.time_s
        yield {
            "name": row.back_end,
            "bytes": size.bytes,
            "value": 1e3 * (time.value or 0.0),
            "low": None if time.low is None else 1e3 * time.low,
            "high": None if time.high is None else 1e3 * time.high,
        }


def _line(row: NetRow) -> Iterator[Spec]:
    fit = row.fit
    if fit is None or fit.start_s.value is None:
        return
    line = Line.of_fit(fit.start_s.value, row.volume, fit.bandwidth_bytes_per_s.value)
    for size, seconds in line_points(line, row.sizes[0].bytes, row.sizes[-1].bytes):
        yield {"name": row.back_end, "bytes": size, "value": max(1e3 * seconds, 1e-6)}
