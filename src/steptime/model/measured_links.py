"""Measured links: from the records of the network benchmark to alpha, latencies per step and bandwidth."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.analysis.message_times import (
    METHODS,
    PREFERRED,
    Fit,
    Line,
    MessageTimes,
    NetRow,
    NetSummary,
    SizeRow,
    SizeTime,
    bounded,
    message_times,
    size_time,
)
from steptime.analysis.pooled_conditions import pooled_versions, versions_of
from steptime.flags import stored_flag_text
from steptime.model.collectives import ALL_REDUCES, OPERATIONS, Link
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.results.net_records import NetLaunch, NetSetting
from steptime.results.store import Store
from steptime.statistics.interval import LEVEL

_FEWEST_SIZES = 2


def stored_links(store: Store) -> NetSummary | None:
    """Return what the network benchmark found in a results folder; None if it was not run."""
    launches = store.net()
    return net_summary(launches) if launches else None


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
    """Return the link that a row found, for the models of its operation; None if nothing was fitted.

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


class _Outcomes:
    """How the launches of a row ended, and what their workers and hosts counted."""

    def __init__(self, launches: Sequence[NetLaunch]) -> None:
        """Sort launches by how they ended."""
        self.good = [launch for launch in launches if launch.status == "ok"]
        self.wrong = [launch for launch in launches if launch.status == "wrong"]
        self._bad = [launch for launch in launches if launch.status != "ok"]
        self._workers = [worker for launch in launches for worker in launch.workers]

    def columns(self) -> dict[str, Any]:
        """Return the fields of a row about them."""
        return {
            "framework_version": ", ".join(self._versions()) or None,
            "launches": len(self.good),
            "failed_launches": len(self._bad) - len(self.wrong),
            "wrong_launches": len(self.wrong),
            "checks": sum(worker.checks for worker in self._workers),
            "wrong": sum(worker.wrong for worker in self._workers),
            "status": "wrong" if self.wrong else "ok" if self.good else "failed",
            "reason": self._bad[-1].reason if self._bad else None,
            "flags": [
                *sorted({stored_flag_text(flag) for launch in self.good for flag in launch.flags}),
                *pooled_versions([versions_of(launch) for launch in self.good]),
            ],
            "received_bytes": _received(self.good),
        }

    def _versions(self) -> list[str]:
        firsts = [worker for launch in self.good for worker in launch.workers[:1]]
        return sorted({str(worker.facts.get("framework_version")) for worker in firsts})


def _row(setting: NetSetting, operation: str, launches: Sequence[NetLaunch]) -> NetRow:
    shape = OPERATIONS[operation]
    terms = _Terms(
        shape.steps(setting.workers, setting.servers),
        shape.volume(setting.workers, setting.servers),
    )
    outcomes = _Outcomes(launches)
    times, units = message_times(launches, operation)
    # Only sizes that every unit has: launches of a folder may have been asked for different ones.
    most = max(map(len, times.values()), default=0)
    times = {size: of_units for size, of_units in times.items() if len(of_units) == most}
    alpha = _alpha(outcomes.good)
    fitted = not outcomes.wrong and len(times) >= _FEWEST_SIZES
    fits = {name: _fit(times, name, terms, alpha) for name in METHODS} if fitted else {}
    line = _line(times, PREFERRED) if fitted else None
    bus_volume = terms.volume if operation in ALL_REDUCES else None
    timed = {} if outcomes.wrong else times
    return NetRow(
        back_end=setting.back_end,
        framework=setting.framework,
        operation=operation,
        workers=setting.workers,
        servers=setting.servers,
        launcher=setting.launcher,
        cluster=setting.cluster.model_dump(mode="json") if setting.cluster else None,
        steps=terms.steps,
        volume=terms.volume,
        **outcomes.columns(),
        interval_over=units,
        level=LEVEL,
        alpha_s=alpha or NOT_MEASURED,
        sizes=[_size_row(size, of_units, line, bus_volume) for size, of_units in timed.items()],
        fit=fits.get(PREFERRED),
        least_squares=fits.get("least_squares"),
    )


def _bus_rate(moved: float | None, found: SizeTime) -> Interval[float | None]:
    """Return the rate of the bytes that a link carries in either direction; None for a collective without one."""
    if moved is None:
        return NOT_MEASURED
    bounds = (found.median_s, found.high_s, found.low_s)
    return Interval(*(None if each is None else moved / each for each in bounds))


def _size_row(size: int, units: Sequence[NDArray[np.float64]], line: Line | None, volume: float | None) -> SizeRow:
    found = size_time(size, units)
    fitted = float(line.at(size)) if line else found.median_s
    return SizeRow(
        bytes=size,
        time_s=Interval(value=found.median_s, low=found.low_s, high=found.high_s),
        q10_s=found.q10_s,
        q90_s=found.q90_s,
        runs=found.runs,
        bus_bytes_per_s=_bus_rate(None if volume is None else volume * size, found),
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


def _fit(times: MessageTimes, method: str, terms: _Terms, alpha: Interval | None) -> Fit:
    whole = _line(times, method)
    units = [_line(times, method, unit) for unit in range(len(next(iter(times.values()))))]
    start = bounded([each.start_s for each in units], whole.start_s)
    errors = {size: float(whole.at(size)) / size_time(size, each).median_s - 1.0 for size, each in times.items()}
    worst = max(errors, key=lambda size: abs(errors[size]))
    return Fit(
        start_s=start,
        latencies_per_step=_latencies(units, whole, terms, alpha) or NOT_MEASURED,
        bandwidth_bytes_per_s=_bandwidth(units, whole, terms) or NOT_MEASURED,
        worst_error=errors[worst],
        worst_bytes=worst,
    )


def _latencies(units: Sequence[Line], whole: Line, terms: _Terms, alpha: Interval | None) -> Interval | None:
    if alpha is None or alpha.value <= 0.0:
        return None
    per_step = terms.steps * alpha.value
    return bounded([each.start_s / per_step for each in units], whole.start_s / per_step)


def _bandwidth(units: Sequence[Line], whole: Line, terms: _Terms) -> Interval | None:
    if whole.per_byte_s <= 0.0:
        return None
    found = bounded([each.per_byte_s for each in units], whole.per_byte_s)
    return Interval(
        terms.volume / whole.per_byte_s,
        terms.volume / found.high if found.high is not None else None,
        # Where the times might not grow with size at all, nothing bounds the bandwidth from above.
        terms.volume / found.low if found.low is not None and found.low > 0.0 else None,
    )


def _alpha(launches: Sequence[NetLaunch]) -> Interval | None:
    found = [float(np.median(launch.alphas_s)) for launch in launches if launch.alphas_s]
    return bounded(found, float(np.median(found))) if found else None


def _received(launches: Sequence[NetLaunch]) -> int | None:
    hosts = [host for launch in launches if launch.cluster for host in launch.cluster["hosts"]]
    return sum(host["received_bytes"] for host in hosts) if hosts else None


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
