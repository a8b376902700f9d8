"""What the network benchmark found, for a terminal: one line per back end, operation and number of workers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from steptime.measurements.json_form import NOT_MEASURED, Interval
from steptime.measurements.net.form import NetRow, NetSummary
from steptime.measurements.net.line import Line, line_points
from steptime.report.charts.chart import Figure, Spec, picture
from steptime.report.charts.link import link_chart
from steptime.report.charts.marks import Marks, parts
from steptime.report.number_format import NO_INTERVAL, UNKNOWN, Shown, count, number
from steptime.units import format_bit_rate, format_bytes, format_seconds

_UNSURE = 10
"""An interval that reaches further than this many times its number, in both directions, is not shown in figures."""

EXPLANATION = (
    "Alpha: one way of one byte over a plain socket between the same processes. Latencies: what a message without a "
    "byte costs, in alphas, per step of the textbook algorithm (a ring of p workers has 2(p-1)). Bandwidth: of each "
    "worker's link. Both are of the line through the smallest and the largest size; errors are the line's distance "
    "from the measured times."
)


def render_links(found: NetSummary) -> RenderableType:
    """Return the tables; they fit themselves into the width that they are printed with."""
    return _LinkTables(found)


def conditions(row: NetRow) -> str:
    """Return where a row was measured: on this host, between hosts of a site, or between emulated ones."""
    if row.cluster is None:
        return "on this host"
    if row.cluster["kind"] == "found":
        return f"between hosts of {count(row.cluster['workers_per_host'], 'worker')}, reached by {row.launcher}"
    rates = sorted({host["bandwidth_bits_per_s"] or 0.0 for host in row.cluster["hosts"]})
    parts = [f"links of {format_bit_rate(rate)}" for rate in rates if rate]
    parts += [f"{format_seconds(row.cluster['delay_s'])} delay"] if row.cluster["delay_s"] else []
    return "between emulated hosts" + (f", {', '.join(parts)} asked for" if parts else "")


class OperationRow(NamedTuple):
    """One operation of a back end."""

    row: NetRow
    who: str
    """How many workers and servers."""
    alpha: Shown
    latencies: Shown
    bandwidth: Shown
    worst: str
    """The error of largest size, and where it is."""


def operation_row(row: NetRow) -> OperationRow:
    """Return an operation of a back end."""
    fit = row.fit
    rate = fit.bandwidth_bytes_per_s if fit else NOT_MEASURED
    bits = Interval(*(bound and 8.0 * bound for bound in (rate.value, rate.low, rate.high)))
    return OperationRow(
        row=row,
        who=f"{row.workers} + {count(row.servers, 'server')}" if row.servers else str(row.workers),
        alpha=_shown(row.alpha_s, format_seconds),
        latencies=_shown(fit.latencies_per_step if fit else NOT_MEASURED, number),
        bandwidth=_shown(bits, format_bit_rate),
        worst=f"{fit.worst_error:+.1%} at {format_bytes(fit.worst_bytes)}" if fit else UNKNOWN,
    )


class _LinkTables:
    def __init__(self, found: NetSummary) -> None:
        self._rows = found.rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if not self._rows:
            yield Text("No back end was measured yet.", style="yellow")
            return
        for title, group in groupby(self._rows, conditions):
            rows = [operation_row(row) for row in group]
            yield Text(f"Messages {title}", style="bold cyan")
            for layout in (_wide, _plain, _narrow):
                table = layout(rows)
                if Measurement.get(console, options.update(max_width=10_000), table).maximum <= options.max_width:
                    break
            yield table
            for each in rows:
                if each.row.status != "ok":
                    yield Text(f"{each.row.status}: {_name(each.row)}: {each.row.reason}", style="red")
            for flag in sorted({flag for each in rows for flag in each.row.flags}):
                bearers = sorted({_name(each.row) for each in rows if flag in each.row.flags})
                whose = "all" if len(bearers) == len(rows) else ", ".join(bearers)
                yield Text(f"note: {flag} ({whose})", style="dim")
            yield Text()
        yield Text(EXPLANATION, style="dim")


def _wide(rows: Sequence[OperationRow]) -> Table:
    """Everything, with the error of every size."""
    sizes = sorted({size.bytes for each in rows for size in each.row.sizes})
    table = _table("back end", "operation", "workers", "alpha", "latencies per step", "bandwidth")
    for size in sizes:
        table.add_column(format_bytes(size), justify="right", no_wrap=True)
    for each in rows:
        errors = {size.bytes: f"{size.error:+.1%}" for size in each.row.sizes} if each.row.fit else {}
        numbers = [shown.line for shown in (each.alpha, each.latencies, each.bandwidth)]
        cells = [errors.get(size, UNKNOWN) for size in sizes]
        table.add_row(each.row.back_end, each.row.operation, each.who, *numbers, *cells)
    return table


def _plain(rows: Sequence[OperationRow]) -> Table:
    """Intervals under their numbers, and the worst error only."""
    table = _table("back end", "operation", "workers", "alpha", "latencies\nper step", "bandwidth", "worst error")
    for each in rows:
        numbers = ["\n".join(filter(None, shown)) for shown in (each.alpha, each.latencies, each.bandwidth)]
        table.add_row(each.row.back_end, each.row.operation, each.who, *numbers, each.worst.replace(" at ", "\nat "))
    return table


def _narrow(rows: Sequence[OperationRow]) -> Table:
    """A paragraph for each row."""
    table = Table.grid(padding=(0, 1))
    table.add_column(overflow="fold")
    for each in rows:
        lines = [
            _name(each.row),
            f"  alpha {each.alpha.line}",
            f"  latencies per step {each.latencies.line}",
            f"  bandwidth {each.bandwidth.line}",
            f"  worst error {each.worst}",
        ]
        table.add_row(Text("\n".join(lines)))
    return table


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for index, title in enumerate(titles):
        table.add_column(title, no_wrap=True, justify="left" if index < 2 else "right")  # noqa: PLR2004 - names, then numbers
    return table


def _shown(found: Interval[float | None], form: Callable[[float], str]) -> Shown:
    if found.value is None:
        return Shown(UNKNOWN, "")
    if found.low is None:
        return Shown(form(found.value), NO_INTERVAL)
    if found.high is None:
        return Shown(form(found.value), f"{form(found.low)} or more")
    if found.low <= 0.0 or found.high > _UNSURE**2 * found.low:
        return Shown(form(found.value), f"unsure by more than {_UNSURE}x")
    texts = [form(each) for each in (found.value, found.low, found.high)]
    # A unit that all three have is said once.
    units = {text.partition(" ")[2] for text in texts}
    low, high = [text.partition(" ")[0] if len(units) == 1 else text for text in texts[1:]]
    return Shown(texts[0], f"{low} to {high}")


def _name(row: NetRow) -> str:
    return f"{row.back_end} {row.operation}, {count(row.workers, 'worker')}"


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
