"""The links of a user's own script: those of its back end whose messages were timed, on its host and between others."""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from steptime.analysis.message_times import NetRow
from steptime.attached.form import AttachedRun
from steptime.fitting.observation import Rate, Seconds
from steptime.fitting.profile import NetLink
from steptime.model.collectives import Link
from steptime.model.measured_links import link_of
from steptime.results.stored_record import Count

_BITS = 8
_ON_ONE_HOST = {"local", "mpi"}
"""Launchers of the message benchmark whose workers share a host."""


class AttachedLink(BaseModel):
    """The link between workers, as the message benchmark of the same back end found it."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)

    back_end: str
    rate: Rate
    start_s: Seconds
    """Of one step of the ring."""
    workers: Count
    """The most that were measured."""
    between_hosts: bool
    hosts: Count | None = None
    """Between which messages were timed; None if that is not on record."""
    nominal_rate: Rate | None = None
    """That was asked of emulated links; None of others."""


def run_link(run: AttachedRun, rows: Sequence[NetRow]) -> AttachedLink | None:
    """Return the link of the run: of the nearest number of workers, and of one place."""
    measured = _timed(run, rows)
    if not measured:
        return None
    row, link = min(measured, key=lambda each: abs(each[0].workers - max(2, run.world)))
    return _attached_link(row, link, max(each.workers for each, _ in measured if _place(each) == _place(row)))


def further_links(run: AttachedRun, rows: Sequence[NetRow]) -> list[AttachedLink]:
    """Return the links between hosts, those of real hosts first, each of the most workers."""
    between = [each for each in _timed(run, rows) if _place(each[0])[0]]
    most = {_place(row): (row, link) for row, link in sorted(between, key=lambda timed: timed[0].workers)}
    order = sorted(most.values(), key=lambda timed: (timed[0].launcher == "emulated", -timed[0].workers))
    return [_attached_link(row, link, row.workers) for row, link in order]


def _timed(run: AttachedRun, rows: Sequence[NetRow]) -> list[tuple[NetRow, Link]]:
    """Return the all-reduces of the back end of the run that describe a link."""
    back_end = (run.back_end or "").rpartition("/")[2]
    own = [row for row in rows if row.operation == "allreduce" and (not back_end or row.back_end == back_end)]
    return [(row, link) for row in own if (link := link_of(row)) is not None]


def _place(row: NetRow) -> tuple[bool, float | None]:
    """Return whether messages went between hosts, and the rate that was asked of emulated links, in bits."""
    hosts = row.cluster["hosts"] if row.cluster else []
    rates = [host["bandwidth_bits_per_s"] for host in hosts if host["bandwidth_bits_per_s"]]
    return row.launcher not in _ON_ONE_HOST, min(rates, default=None)


def _attached_link(row: NetRow, link: Link, workers: int) -> AttachedLink:
    between, bits_per_s = _place(row)
    return AttachedLink(
        back_end=row.back_end,
        rate=float(np.asarray(link.rate)),
        start_s=float(np.asarray(link.start)),
        workers=workers,
        between_hosts=between,
        hosts=len(row.cluster["hosts"]) if row.cluster else None if between else 1,
        nominal_rate=bits_per_s / _BITS if bits_per_s else None,
    )


def link_of_tables(tables: Sequence[NetLink]) -> AttachedLink:
    """Return the link of most ranks: between hosts where a table has several."""
    widest = max(tables, key=lambda each: (each.between_hosts, each.workers))
    return AttachedLink(
        back_end=widest.back_end,
        rate=widest.rate,
        start_s=widest.latency_s,
        workers=widest.workers,
        between_hosts=widest.between_hosts,
    )
