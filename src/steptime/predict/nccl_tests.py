"""The links behind tables of nccl-tests: fitted to the all-reduces of one host, and to those of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]  # scipy ships no types

from steptime.predict.links import ANY_FRAMEWORK
from steptime.predict.model.collectives import Link
from steptime.predict.model.link_catalogue import LINKS, inner_link_of
from steptime.predict.model.nccl import NcclLinks, nccl_cost
from steptime.predict.nccl_output import NcclTable
from steptime.predict.posterior import Array
from steptime.predict.profile import NetLink


@dataclass(frozen=True)
class FittedTable:
    """A table beside the model of its links."""

    table: NcclTable
    modelled_s: Array
    """(rows,)"""
    link: NetLink

    def to_json(self) -> dict[str, Any]:
        """Return what ``steptime fit --json`` prints of a table."""
        return {
            "file": self.table.name,
            "ranks": self.table.ranks,
            "hosts": self.table.hosts,
            "rate_bytes_per_s": self.link.rate,
            "latency_s": self.link.latency_s,
            "sizes": [
                {
                    "bytes": row.size,
                    "time_s": row.seconds,
                    "modelled_s": float(modelled),
                    "bus_bytes_per_s": self.table.bus_rate(row),
                }
                for row, modelled in zip(self.table.rows, self.modelled_s, strict=True)
            ],
        }


def fit_tables(tables: Sequence[NcclTable], device: str | None = None) -> list[FittedTable]:
    """Return the links behind tables: inside a host of those of one host, between hosts of the others.

    Args:
        tables: of any numbers of ranks and hosts; those of one host say what the others have inside.
        device: the name that the driver gives the devices, where a table does not say it.
    """
    inside = [table for table in tables if table.hosts == 1]
    found = []
    inner = inner_link_of(next((table.device for table in tables if table.device), device)).link
    if inside:
        inner = _fitted(inside, inner)
        found += [_result(table, inner, None) for table in inside]
    between = [table for table in tables if table.hosts > 1]
    if between:
        outer = _fitted(between, LINKS["infiniband-hdr"].link, inner)
        found += [_result(table, inner, outer) for table in between]
    return sorted(found, key=lambda each: (each.table.hosts, each.table.ranks))


def modelled(table: NcclTable, inner: Link, outer: Link | None) -> Array:
    """Return NCCL's seconds of each row of a table; ``outer`` is of all cards of a host together."""
    links = NcclLinks(inner, outer or Link(np.inf), table.ranks, table.hosts)
    start, transfer = nccl_cost("allreduce", np.array([row.size for row in table.rows], float), links)
    found: Array = np.ravel(start + transfer)
    return found


def _fitted(tables: Sequence[NcclTable], believed: Link, inner: Link | None = None) -> Link:
    """Return the link whose latency and rate explain tables best, by the logarithms of their seconds."""

    def link(logs: Array) -> Link:
        return Link(
            float(np.asarray(believed.rate) * np.exp(logs[0])),
            float(np.asarray(believed.latency) * np.exp(logs[1])),
            medium=believed.medium,
            switch_share=believed.switch_share,
        )

    measured = [np.array([row.seconds for row in table.rows]) for table in tables]

    def errors(logs: Array) -> Array:
        tried = link(logs)
        found = [modelled(table, inner, tried) if inner else modelled(table, tried, None) for table in tables]
        return np.concatenate([np.log(one / each) for one, each in zip(found, measured, strict=True)])

    best = least_squares(errors, np.zeros(2), loss="soft_l1", f_scale=0.1, x_scale=0.3, diff_step=1e-2)
    return link(best.x)


def _result(table: NcclTable, inner: Link, outer: Link | None) -> FittedTable:
    seconds = modelled(table, inner, outer)
    measured = np.array([row.seconds for row in table.rows])
    used = outer or inner
    share = seconds / measured
    return FittedTable(
        table,
        seconds,
        NetLink(
            framework=ANY_FRAMEWORK,
            back_end="nccl-tests",
            operation="allreduce",
            launcher="nccl-tests",
            workers=table.ranks,
            servers=0,
            between_hosts=table.hosts > 1,
            nominal_rate=None,
            delay_s=0.0,
            latency_s=float(np.asarray(used.latency)),
            rate=float(np.asarray(used.rate)),
            alpha_s=None,
            worst_error=float(np.sqrt(np.mean(np.log(share) ** 2))),
            medium=used.medium,
            switch_share=float(np.asarray(used.switch_share)),
            efficiency=[(float(row.size), float(each)) for row, each in zip(table.rows, share, strict=True)],
        ),
    )
