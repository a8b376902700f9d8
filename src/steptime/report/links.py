"""What the network benchmark found: one row for each back end, operation and number of workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from steptime.analysis.message_times import Line, NetRow, NetSummary, line_points
from steptime.document import number_format
from steptime.document.charts.chart import Figure, Marks, Spec, chart, parts, picture, round_ticks
from steptime.document.number_format import INCONCLUSIVE, NO_INTERVAL, UNKNOWN, Shown, count, number, scaled
from steptime.document.section import (
    Cell,
    Column,
    Figures,
    Part,
    Section,
    SectionTable,
    Sentences,
    TableRow,
    cells,
    mark_notes,
    short_marks,
)
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.units import format_bit_rate, format_bytes, format_seconds, is_undecided

_SIZE = (
    "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : "
    "datum.value >= 1024 ? datum.value / 1024 + ' KiB' : datum.value + ' B'"
)
_ENOUGH = 3
"""Powers of ten, from which on they are ticks enough."""
_REACH = 1.3
"""How far the axes go beyond the outermost points."""

EXPLANATION = (
    "Alpha: one way of one byte over a plain socket between the same processes. Latencies: what a message without a "
    "byte costs, in alphas, per step of the textbook algorithm (a ring of p workers has 2(p-1)). Bandwidth: of each "
    "worker's link. Both are of the line through the smallest and the largest size. Bus bandwidth: of the largest size "
    "with its start, as in nccl-tests. Errors are the line's distance from the measured times."
)


def link_section(found: NetSummary) -> Section:
    """Return what the network benchmark found: a table and figures for each place where messages were timed."""
    if not found.rows:
        return Section("Links", [Sentences(["No back end was measured yet."], "warning")], id="links")
    marks = Marks(list(dict.fromkeys((row.back_end, row.back_end) for row in found.rows)))
    places = [(place, list(rows)) for place, rows in groupby(found.rows, conditions)]
    groups = [Section(f"Messages {place}", list(_parts(place, rows, marks))) for place, rows in places]
    return Section("Links", groups, EXPLANATION, id="links")


def _parts(place: str, rows: Sequence[NetRow], marks: Marks) -> Iterator[Part]:
    sizes = sorted({size.bytes for row in rows for size in row.sizes})
    columns = [
        Column("operation", "text"),
        Column("workers"),
        Column("alpha"),
        Column("latencies\nper step"),
        Column("bandwidth"),
        Column("bus bandwidth"),
        Column("worst error", shown=("stacked", "list", "page")),
        Column("launches", shown=("page",)),
        Column("marks", "prose", shown=("page",)),
        *(Column(format_bytes(size), shown=("wide",)) for size in sizes),
    ]
    yield SectionTable(columns, [operation_row(row, sizes) for row in rows], "back end", layouts=("wide", "stacked"))
    failed = [f"{row.status}: {_name(row)}: {row.reason}" for row in rows if row.status != "ok"]
    yield Sentences(failed, "bad", only="terminal")
    yield from mark_notes([(_name(row), row.flags) for row in rows])
    yield Figures(lambda: list(_figures(place, rows, marks)))


def operation_row(row: NetRow, sizes: Sequence[int] = ()) -> TableRow:
    """Return an operation of a back end, with the errors of messages of ``sizes`` bytes in its last cells."""
    fit = row.fit
    rate = fit.bandwidth_bytes_per_s if fit else NOT_MEASURED
    bus = _bits(row.sizes[-1].bus_bytes_per_s if row.sizes else NOT_MEASURED)
    errors = {size.bytes: f"{100 * size.error:+.1f} %" for size in row.sizes} if fit else {}
    failure = "" if row.status == "ok" else f"{row.status}: {row.reason}"
    return TableRow(
        row.back_end,
        [
            Cell(row.operation),
            Cell(f"{row.workers} + {count(row.servers, 'server')}" if row.servers else str(row.workers)),
            Cell(*_shown(row.alpha_s, format_seconds)),
            Cell(*_shown(fit.latencies_per_step if fit else NOT_MEASURED, number)),
            Cell(*_shown(_bits(rate), format_bit_rate)),
            Cell(*_shown(bus, format_bit_rate)),
            Cell(f"{100 * fit.worst_error:+.1f} %", note=f"at {format_bytes(fit.worst_bytes)}")
            if fit
            else Cell(UNKNOWN),
            Cell(str(row.launches)),
            Cell(failure, style="bad" if failure else "", marks=short_marks(row.flags)),
            *cells(*(errors.get(size, UNKNOWN) for size in sizes)),
        ],
        under=[f"{row.framework} {row.framework_version or 'of unknown version'}"],
    )


def _bits(rate: Interval[float | None]) -> Interval[float | None]:
    return Interval(*(bound and 8.0 * bound for bound in (rate.value, rate.low, rate.high)))


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


def _shown(found: Interval[float | None], form: Callable[[float], str]) -> Shown:
    if found.value is None:
        return Shown(UNKNOWN, "")
    if found.low is None:
        return Shown(form(found.value), NO_INTERVAL)
    if found.high is None:
        return Shown(form(found.value), f"{form(found.low)} or more")
    if found.low <= 0.0:
        return Shown(INCONCLUSIVE, f"at most {form(found.high)}")
    if is_undecided(found.low, found.high):
        return Shown(INCONCLUSIVE, f"{form(found.low)} to {form(found.high)}")
    return _WITH_INTERVAL[form](found)


_WITH_INTERVAL: Mapping[Callable[[float], str], Callable[[Interval[float | None]], Shown]] = {
    format_bit_rate: lambda rate: scaled(rate, "bit/s"),
    format_seconds: lambda time: number_format.seconds(time.value, time.low, time.high),
    number: lambda rate: scaled(rate, ""),
}
"""How a number is shown whose interval is known, by how one without is: no digit is beyond its interval."""


def _name(row: NetRow) -> str:
    return f"{row.back_end} {row.operation}, {count(row.workers, 'worker')}"


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


def link_chart(points: Sequence[Spec], lines: Sequence[Spec], marks: Marks) -> Spec:
    """Return the chart.

    Args:
        points: a size of a back end each: ``name``, ``bytes``, and in milliseconds ``value``, ``low`` and ``high``
            (which may be None).
        lines: points of the fitted lines: ``name``, ``bytes`` and ``value``.
        marks: what each name looks like.
    """
    names = list(dict.fromkeys(point["name"] for point in points))
    sizes = sorted({point["bytes"] for point in points})
    times = [each["value"] for each in (*points, *lines)]
    x = {
        "field": "bytes",
        "type": "quantitative",
        "title": "size of a message (log scale)",
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [sizes[0] / _REACH, sizes[-1] * _REACH]},
        "axis": {"values": sizes, "labelExpr": _SIZE, "grid": False},
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "title": "time (ms, log scale)",
        "scale": {"type": "log", "nice": False, "domain": [min(times) / _REACH, max(times) * _REACH], "clamp": True},
        "axis": {"format": ",~g", "values": _ticks(min(times), max(times))},
    }
    looks = marks.encodings(names, "color", "shape")
    colour = {"color": looks["color"]}
    layers: list[Spec] = [
        {
            "data": {"values": list(lines)},
            "mark": {"type": "line", "strokeWidth": 1.5, "clip": True},
            "encoding": {"x": x, "y": y, **colour},
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70},
            "encoding": {"x": x, "y": y, **looks},
        },
    ]
    return chart(layers, points)


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and 2 and 5 times these where few would be seen."""
    ticks = [each for each in round_ticks(low / _REACH, high * _REACH) if f"{each:e}"[0] in "125"]
    tens = [each for each in ticks if f"{each:e}"[0] == "1"]
    return tens if len(tens) > _ENOUGH else ticks
