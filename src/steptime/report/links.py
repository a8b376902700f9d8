"""What the network benchmark found, for a terminal: one line per back end, operation and number of workers."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from steptime.measurements.net.form import NetRow, NetSummary, NetValue
from steptime.report.wording import UNKNOWN, count, number
from steptime.units import format_bit_rate, format_bytes, format_seconds

EXPLANATION = (
    "alpha: one way of one byte over a plain socket between the same processes. Latencies: what a message without a "
    "byte costs, in alphas, per step of the textbook algorithm (a ring of p workers has 2(p-1)). Bandwidth: of each "
    "worker's link. Both are of the line through the smallest and the largest size; errors are the line's distance "
    "from the measured times."
)


def render_links(found: NetSummary) -> RenderableType:
    """Return the tables; they fit themselves into the width that they are printed with."""
    return _Links(found)


def conditions(row: NetRow) -> str:
    """Return where a row was measured: on this host, or on emulated hosts with which links."""
    if row.cluster is None:
        return "on this host"
    rates = sorted({host["bandwidth_bits_per_s"] or 0.0 for host in row.cluster["hosts"]})
    parts = [f"links of {format_bit_rate(rate)}" for rate in rates if rate]
    parts += [f"{format_seconds(row.cluster['delay_s'])} delay"] if row.cluster["delay_s"] else []
    return "between emulated hosts" + (f", {', '.join(parts)} asked for" if parts else "")


class _Links:
    def __init__(self, found: NetSummary) -> None:
        self._rows = found.rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if not self._rows:
            yield Text("No back end was measured yet.", style="yellow")
            return
        for title, group in groupby(self._rows, conditions):
            rows = list(group)
            yield Text(f"Messages {title}", style="bold cyan")
            for layout in (_wide, _plain, _narrow):
                table = layout(rows)
                if Measurement.get(console, options.update(max_width=10_000), table).maximum <= options.max_width:
                    break
            yield table
            for row in rows:
                if row.status != "ok":
                    yield Text(f"{row.status}: {_name(row)}: {row.reason}", style="red")
            for flag in sorted({flag for row in rows for flag in row.flags}):
                bearers = sorted({_name(row) for row in rows if flag in row.flags})
                whose = "all" if len(bearers) == len(rows) else ", ".join(bearers)
                yield Text(f"note: {flag} ({whose})", style="dim")
            yield Text()
        yield Text(EXPLANATION, style="dim")


def _wide(rows: Sequence[NetRow]) -> Table:
    """Everything, with the error of every size."""
    sizes = sorted({size.bytes for row in rows for size in row.sizes})
    table = _table("back end", "operation", "workers", "alpha", "latencies per step", "bandwidth")
    for size in sizes:
        table.add_column(format_bytes(size), justify="right", no_wrap=True)
    for row in rows:
        errors = {size.bytes: f"{size.error:+.1%}" for size in row.sizes} if row.fit else {}
        cells = [errors.get(size, UNKNOWN) for size in sizes]
        table.add_row(row.back_end, row.operation, _who(row), *_numbers(row, bounds=True), *cells)
    return table


def _plain(rows: Sequence[NetRow]) -> Table:
    """Without intervals, and with the worst error only."""
    table = _table("back end", "operation", "workers", "alpha", "latencies", "bandwidth", "worst error")
    for row in rows:
        table.add_row(row.back_end, row.operation, _who(row), *_numbers(row, bounds=False), _worst(row))
    return table


def _narrow(rows: Sequence[NetRow]) -> Table:
    """A paragraph for each row."""
    table = Table.grid(padding=(0, 1))
    table.add_column(overflow="fold")
    for row in rows:
        alpha, latencies, bandwidth = _numbers(row, bounds=False)
        lines = [_name(row), f"  alpha {alpha}", f"  latencies per step {latencies}", f"  bandwidth {bandwidth}"]
        table.add_row(Text("\n".join([*lines, f"  worst error {_worst(row)}"])))
    return table


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for index, title in enumerate(titles):
        table.add_column(title, no_wrap=True, justify="left" if index < 2 else "right")  # noqa: PLR2004 - names, then numbers
    return table


def _numbers(row: NetRow, *, bounds: bool) -> list[str]:
    fit = row.fit
    rate = fit.bandwidth_bytes_per_s if fit else NetValue()
    bits = NetValue(**{name: value and 8.0 * value for name, value in rate.model_dump().items()})
    return [
        _shown(row.alpha_s, format_seconds, bounds=bounds),
        _shown(fit.latencies_per_step if fit else NetValue(), number, bounds=bounds),
        _shown(bits, format_bit_rate, bounds=bounds),
    ]


def _shown(found: NetValue, form: Callable[[float], str], *, bounds: bool) -> str:
    if found.value is None:
        return UNKNOWN
    text = form(found.value)
    if not bounds or found.low is None or found.high is None:
        return text
    return f"{text} ({form(found.low)} to {form(found.high)})"


def _worst(row: NetRow) -> str:
    return f"{row.fit.worst_error:+.1%} at {format_bytes(row.fit.worst_bytes)}" if row.fit else UNKNOWN


def _who(row: NetRow) -> str:
    return f"{row.workers} + {count(row.servers, 'server')}" if row.servers else str(row.workers)


def _name(row: NetRow) -> str:
    return f"{row.back_end} {row.operation}, {count(row.workers, 'worker')}"
