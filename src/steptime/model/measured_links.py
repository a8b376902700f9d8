"""Links as the network benchmark found them: from its records to alpha, latencies per step and bandwidth.

A back end that does something else from some size on: where its measured times bend, and the line on either side.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]  # scipy ships no types

from steptime.measurements.interval import LEVEL
from steptime.measurements.net.form import Fit, NetRow, NetSummary, NetValue, SizeRow
from steptime.measurements.net.line import METHODS, PREFERRED, Bounded, Line, bounded
from steptime.measurements.net.records import NetLaunch, NetSetting
from steptime.measurements.net.times import MessageTimes, message_times, size_time
from steptime.model.collectives import OPERATIONS, Link
from steptime.model.interconnect import Interconnect, Switch

_FEWEST_SIZES = 2


def net_summary(launches: Iterable[NetLaunch]) -> NetSummary:
    """Return one row per back end, operation and worker count (and cluster), the fewest workers first."""
    found: dict[tuple[str, str], list[NetLaunch]] = defaultdict(list)
    for launch in launches:
        for operation in launch.setting.operations:
            found[_measured(launch.setting), operation].append(launch)
    rows = [_row(each[0].setting, operation, each) for (_, operation), each in found.items()]
    rows.sort(
        key=lambda row: (row.launcher == "emulated", _links(row), row.back_end, row.operation, row.servers, row.workers)
    )
    return NetSummary(rows=_predicted(rows))


def link_of(row: NetRow) -> Link | None:
    """Return the link that a row found, for the models of its operation; None where nothing was fitted.

    Where alpha or the latencies are unknown, the latency of a step is all in ``latency``.
    """
    if row.fit is None or row.fit.bandwidth_bytes_per_s.value is None or row.fit.start_s.value is None:
        return None
    rate = row.fit.bandwidth_bytes_per_s.value
    if row.alpha_s.value and row.fit.latencies_per_step.value is not None:
        return Link(rate, row.alpha_s.value, row.fit.latencies_per_step.value)
    return Link(rate, row.fit.start_s.value / row.steps)


def _measured(setting: NetSetting) -> str:
    """What was measured, whatever else was in the same launches and however long it took."""
    return setting.model_dump_json(exclude={"operations", "sizes", "rounds", "runs", "seconds"})


@dataclass(frozen=True)
class _Terms:
    """Of an operation between the workers of a row."""

    steps: float
    volume: float


def _row(setting: NetSetting, operation: str, launches: Sequence[NetLaunch]) -> NetRow:
    shape = OPERATIONS[operation]
    terms = _Terms(
        shape.steps(setting.workers, setting.servers),
        shape.volume(setting.workers, setting.servers),
    )
    good = [launch for launch in launches if launch.status == "ok"]
    bad = [launch for launch in launches if launch.status != "ok"]
    wrong = [launch for launch in bad if launch.status == "wrong"]
    times, units = message_times(launches, operation)
    # Only sizes that every unit has: launches of a folder may have been asked for different ones.
    most = max((len(each) for each in times.values()), default=0)
    times = {size: each for size, each in times.items() if len(each) == most}
    alpha = _alpha(good)
    fitted = not wrong and len(times) >= _FEWEST_SIZES
    fits = {name: _fit(times, name, terms, alpha) for name in METHODS} if fitted else {}
    line = _line(times, PREFERRED) if fitted else None
    versions = {str(worker.facts.get("framework_version")) for launch in good for worker in launch.workers[:1]}
    return NetRow(
        back_end=setting.back_end,
        framework=setting.framework,
        framework_version=", ".join(sorted(versions)) or None,
        operation=operation,
        workers=setting.workers,
        servers=setting.servers,
        launcher=setting.launcher,
        cluster=setting.cluster.model_dump(mode="json") if setting.cluster else None,
        steps=terms.steps,
        volume=terms.volume,
        launches=len(good),
        failed_launches=len(bad) - len(wrong),
        wrong_launches=len(wrong),
        checks=sum(worker.checks for launch in launches for worker in launch.workers),
        wrong=sum(worker.wrong for launch in launches for worker in launch.workers),
        status="wrong" if wrong else "ok" if good else "failed",
        reason=bad[-1].reason if bad else None,
        interval_over=units,
        level=LEVEL,
        alpha_s=_value(alpha),
        sizes=[_size_row(size, each, line) for size, each in times.items()] if not wrong else [],
        fit=fits.get(PREFERRED),
        least_squares=fits.get("least_squares"),
        flags=sorted({flag for launch in good for flag in launch.flags}),
        received_bytes=_received(good),
    )


def _size_row(size: int, units: Sequence[NDArray[np.float64]], line: Line | None) -> SizeRow:
    found = size_time(size, units)
    fitted = float(line.at(size)) if line else found.median_s
    return SizeRow(
        bytes=size,
        time_s=NetValue(value=found.median_s, low=found.low_s, high=found.high_s),
        q10_s=found.q10_s,
        q90_s=found.q90_s,
        runs=found.runs,
        fitted_s=fitted,
        error=fitted / found.median_s - 1.0,
    )


def _line(times: MessageTimes, method: str, unit: int | None = None) -> Line:
    """Return the line through the medians of all units, or of one."""
    sizes = np.array(list(times), dtype=np.float64)
    seconds = [
        size_time(size, units if unit is None else units[unit : unit + 1]).median_s for size, units in times.items()
    ]
    return METHODS[method](sizes, np.array(seconds))


def _fit(times: MessageTimes, method: str, terms: _Terms, alpha: Bounded | None) -> Fit:
    whole = _line(times, method)
    units = [_line(times, method, unit) for unit in range(len(next(iter(times.values()))))]
    start = bounded([each.start_s for each in units], whole.start_s)
    errors = {size: float(whole.at(size)) / size_time(size, each).median_s - 1.0 for size, each in times.items()}
    worst = max(errors, key=lambda size: abs(errors[size]))
    return Fit(
        start_s=_value(start),
        latencies_per_step=_value(_latencies(units, whole, terms, alpha)),
        bandwidth_bytes_per_s=_value(_bandwidth(units, whole, terms)),
        worst_error=errors[worst],
        worst_bytes=worst,
    )


def _latencies(units: Sequence[Line], whole: Line, terms: _Terms, alpha: Bounded | None) -> Bounded | None:
    if alpha is None or alpha.value <= 0.0:
        return None
    per_step = terms.steps * alpha.value
    return bounded([each.start_s / per_step for each in units], whole.start_s / per_step)


def _bandwidth(units: Sequence[Line], whole: Line, terms: _Terms) -> Bounded | None:
    if whole.per_byte_s <= 0.0:
        return None
    found = bounded([each.per_byte_s for each in units], whole.per_byte_s)
    return Bounded(
        terms.volume / whole.per_byte_s,
        terms.volume / found.high if found.high is not None else None,
        # Where the times might not grow with size at all, nothing bounds the bandwidth from above.
        terms.volume / found.low if found.low is not None and found.low > 0.0 else None,
    )


def _alpha(launches: Sequence[NetLaunch]) -> Bounded | None:
    found = [float(np.median(launch.alphas_s)) for launch in launches if launch.alphas_s]
    return bounded(found, float(np.median(found))) if found else None


def _received(launches: Sequence[NetLaunch]) -> int | None:
    hosts = [host for launch in launches if launch.cluster for host in launch.cluster["hosts"]]
    return sum(host["received_bytes"] for host in hosts) if hosts else None


def _value(found: Bounded | None) -> NetValue:
    return NetValue(value=found.value, low=found.low, high=found.high) if found else NetValue()


def _predicted(rows: Sequence[NetRow]) -> list[NetRow]:
    """Return the rows with the errors of what the same back end's fewest workers predict for them."""
    first: dict[tuple[str, ...], NetRow] = {}
    found = []
    for row in rows:
        key = (row.back_end, row.operation, row.launcher, _links(row))
        link = link_of(row)
        if link is not None:
            first.setdefault(key, row)
        source = first.get(key)
        given = link_of(source) if source is not None and source.workers < row.workers else None
        found.append(row if given is None else _with_prediction(row, given))
    return found


def _with_prediction(row: NetRow, link: Link) -> NetRow:
    sizes = [
        size.model_copy(
            update={
                "predicted_error": (row.steps * link.start + row.volume * size.bytes / link.rate)
                / (size.time_s.value or np.nan)
                - 1.0
            }
        )
        for size in row.sizes
    ]
    return row.model_copy(update={"sizes": sizes})


def _links(row: NetRow) -> str:
    """What of a cluster does not change with the number of workers."""
    if row.cluster is None:
        return ""
    rates = sorted({host["bandwidth_bits_per_s"] or 0.0 for host in row.cluster["hosts"]})
    return f"{rates} {row.cluster['delay_s']} {row.cluster['workers_per_host']}"


Array = NDArray[np.float64]

_FEWEST = 3
"""Sizes on either side of a switch: two lie on some line whatever they are."""
_NUMBERS_OF_A_LINE = 2
_NUMBERS_OF_A_SWITCH = 3
"""Where it is, and another line."""
_CLOSEST = 0.05
"""Relative error below which nothing is explained better: buffers and the scheduler bend times as much."""


@dataclass(frozen=True)
class Piece:
    """Messages of at least a size: ``start_s + per_byte_s n``."""

    size: float
    start_s: float
    per_byte_s: float


def pieces(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[Piece, ...]:
    """Return the line through measured times, or the two lines and the size that parts them.

    A switch is believed when two lines explain the times better than one by the criterion of G. Schwarz (Ann. Stat. 6
    (1978) 461) over relative errors, with at least three sizes on either side. No number of a line is negative.

    Args:
        sizes: bytes, ascending.
        seconds: measured, one per size.

    Raises ValueError for fewer than two sizes, and for times that are not positive.
    """
    size, time = np.asarray(sizes, float), np.asarray(seconds, float)
    if len(size) < _NUMBERS_OF_A_LINE or (time <= 0).any() or (np.diff(size) <= 0).any():
        message = f"a line needs two ascending sizes and positive times, got {list(sizes)} and {list(seconds)}"
        raise ValueError(message)
    whole = _line_of_piecewise(size, time)
    best: tuple[Piece, ...] = (_piece(0.0, whole),)
    least = _criterion(_squares(size, time, whole), len(size), _NUMBERS_OF_A_LINE)
    for cut in range(_FEWEST, len(size) - _FEWEST + 1):
        low, high = _line_of_piecewise(size[:cut], time[:cut]), _line_of_piecewise(size[cut:], time[cut:])
        squares = _squares(size[:cut], time[:cut], low) + _squares(size[cut:], time[cut:], high)
        found = _criterion(squares, len(size), _NUMBERS_OF_A_LINE + _NUMBERS_OF_A_SWITCH)
        if found < least:
            # Nothing was measured between the two sizes: the switch is taken to lie half-way, in orders of magnitude.
            best = (_piece(0.0, low), _piece(float(np.sqrt(size[cut - 1] * size[cut])), high))
            least = found
    return best


def interconnect_of(
    found: Sequence[Piece], steps: float, volume: float, algorithm: str = "ring", *, rendezvous: float = np.inf
) -> Interconnect:
    """Return the interconnect on which an operation takes as long as its pieces say.

    Args:
        found: of ``pieces``.
        steps: of the operation by its textbook algorithm, between the workers that were measured.
        volume: bytes on the busiest link per byte of a message, likewise.
        algorithm: whose steps and volume these are.
        rendezvous: bytes from which messages wait for their receivers.
    """
    links = [
        Link(
            rate=volume / piece.per_byte_s if piece.per_byte_s > 0 else np.inf,
            latency=piece.start_s / steps,
            rendezvous=rendezvous,
        )
        for piece in found
    ]
    switches = [Switch(piece.size, link, algorithm) for piece, link in zip(found[1:], links[1:], strict=True)]
    return Interconnect(links[0], algorithm, switches=tuple(switches))


def _line_of_piecewise(sizes: Array, seconds: Array) -> Array:
    """Return start and seconds per byte of the least sum of squared relative errors."""
    terms = np.column_stack([np.ones_like(sizes), sizes]) / seconds[:, None]
    scale = np.array([1.0, sizes[-1]])
    found, _ = nnls(terms / scale, np.ones_like(sizes))
    line: Array = found / scale
    return line


def _piece(size: float, line: Array) -> Piece:
    return Piece(size, float(line[0]), float(line[1]))


def _squares(sizes: Array, seconds: Array, line: Array) -> float:
    return float(np.square((line[0] + line[1] * sizes) / seconds - 1.0).sum())


def _criterion(squares: float, count: int, numbers: int) -> float:
    return count * float(np.log(squares / count + _CLOSEST**2)) + numbers * float(np.log(count))
