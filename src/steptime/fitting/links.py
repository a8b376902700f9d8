"""The link behind a configuration: from the back end's micro-benchmark, from plain sockets, or from a prior.

The links behind tables of nccl-tests: fitted to the all-reduces of one host, and to those of several.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.analysis.message_times import NetRow
from steptime.catalog.choices import strategy_named
from steptime.fitting.nccl_output import NcclTable
from steptime.fitting.observation import Deployment, GroupKey, Observation
from steptime.fitting.posterior import Array
from steptime.fitting.profile import LinkEstimate, LinkSource, Machine, NetLink
from steptime.model.collectives import Link
from steptime.model.link_sheets import LINKS, LinkSheet, inner_link_of
from steptime.model.measured_links import link_of, net_summary
from steptime.model.nccl import LAUNCH, OTHER_STEP, STEP, NcclLinks, nccl_cost
from steptime.results.net_records import NetLaunch

LATENCIES = 2.0
"""Latencies that a back end usually spends in one step of its algorithm: gloo's ring waits for a rendezvous each."""
_PRIOR_LATENCY = 40e-6
_PRIOR_RATE = 1e9
"""Of workers on one host: a copy through the kernel."""

LinkSpread = tuple[float, float]
"""Standard deviations of the logarithms of a link's latency and bandwidth."""

PRIOR_SPREADS: Mapping[LinkSource, LinkSpread] = {
    "net": (0.15, 0.05),
    "cluster": (0.7, 0.1),
    "believed": (1.0, 1.0),
    "prior": (2.0, 1.5),
}
"""Of the prior, by where the link is known from."""
LINK_SOURCES = tuple(PRIOR_SPREADS)
"""The best known first."""
ANY_FRAMEWORK = "any"
"""Of benchmarks of NCCL, which is the same under every framework."""
_NCCL_START_S = LAUNCH + 6.6e-6
"""Seconds of an all-reduce without a step; see ``model.nccl``."""
_MOST_ERROR = 0.7
_BITS = 8
_ALIKE = 0.02
_OVER_GLOO = frozenset({"gloo", "jax"})
"""Back ends whose messages gloo carries, and whose threads look for them all the time."""
_GLOO_IN_TURNS = 1.1e-3
"""Seconds of a step of gloo's ring among three and four workers on two cores, however small the message
(``benchmarks/accuracy/messages-gloo.csv``, 1 KiB)."""


def prior_spread(link: LinkEstimate) -> LinkSpread:
    """Return the prior's standard deviations of a link.

    Where no straight line describes the micro-benchmark, its error may be one of latency or of bandwidth.
    """
    latency, rate = PRIOR_SPREADS[link.source]
    error = min(link.error, _MOST_ERROR)
    return float(np.hypot(latency, error)), float(np.hypot(rate, error / 2.0))


def net_links(launches: Iterable[NetLaunch]) -> list[NetLink]:
    """Return the rows of the network benchmark that were fitted."""
    return [each for each in map(_net_link, net_summary(launches).rows) if each]


def measured_link(observation: Observation, net: Sequence[NetLink], machine: Machine) -> LinkEstimate | None:
    """Return the link of a measured configuration; None for one worker without servers."""
    deployment = observation.deployment
    if deployment.workers == 1 and not deployment.servers:
        return None
    row = benchmark_of(observation.key, deployment, net)
    nominal = deployment.bandwidth
    if row is not None:
        return benchmarked_link(row, between_hosts=deployment.crosses, nominal_rate=nominal)
    if deployment.crosses and observation.alpha_s is not None and observation.rate is not None:
        return LinkEstimate(
            latency_s=LATENCIES * observation.alpha_s,
            rate=observation.rate,
            source="cluster",
            between_hosts=True,
            nominal_rate=nominal,
            alpha_s=observation.alpha_s,
        )
    if observation.key.device == "cuda":
        return unknown_card() if deployment.crosses else device_link(machine)
    return LinkEstimate(latency_s=_PRIOR_LATENCY, rate=_PRIOR_RATE, source="prior", between_hosts=deployment.crosses)


def inner_link(key: GroupKey, deployment: Deployment, net: Sequence[NetLink], machine: Machine) -> LinkEstimate | None:
    """Return the link between workers of one host that exchange with other hosts too; None if each is alone."""
    if not deployment.crosses or min(deployment.workers_per_host, deployment.workers) == 1:
        return None
    row = benchmark_of(key, inside_of(deployment), net)
    if row is not None:
        return benchmarked_link(row, between_hosts=False, nominal_rate=None)
    if key.device == "cuda":
        return device_link(machine)
    return LinkEstimate(latency_s=_PRIOR_LATENCY, rate=_PRIOR_RATE, source="prior", between_hosts=False)


def inside_of(deployment: Deployment) -> Deployment:
    """Return the deployment of one host's workers alone."""
    workers = min(deployment.workers, deployment.workers_per_host)
    return replace(
        deployment,
        workers=workers,
        hosts=1,
        server_hosts=0,
        workers_per_host=workers,
        emulated=False,
        bandwidth=None,
        delay_s=0.0,
    )


def device_link(machine: Machine) -> LinkEstimate:
    """Return what is believed to join the devices of a machine."""
    return sheet_link(inner_link_of(machine.gpu), between_hosts=False)


def sheet_link(sheet: LinkSheet, *, between_hosts: bool) -> LinkEstimate:
    """Return a link that is known by its data sheet."""
    return LinkEstimate(
        latency_s=sheet.latency_s,
        rate=sheet.rate,
        source="believed",
        between_hosts=between_hosts,
        nominal_rate=None,
        medium=sheet.medium,
        switch_share=sheet.switch_share,
    )


def link_of_other_library(link: LinkEstimate) -> LinkEstimate:
    """Return a link as another library than NCCL uses it: data sheets state latencies of NCCL's quickest protocol."""
    if link.source in {"net", "cluster"}:
        return link
    longer = OTHER_STEP[link.medium] - STEP[link.medium]
    return link.model_copy(update={"latency_s": link.latency_s + longer})


def unknown_card() -> LinkEstimate:
    """Return the card of a host of devices of which nothing is known but that messages crossed it."""
    sheet = LINKS["roce-100g"]
    return LinkEstimate(latency_s=sheet.latency_s, rate=sheet.rate, source="prior", between_hosts=True)


def benchmarked_link(row: NetLink, *, between_hosts: bool, nominal_rate: float | None) -> LinkEstimate:
    """Return the link that a row of the network benchmark found."""
    steps = 2 * max(row.workers - 1, 1)
    own = row.framework != ANY_FRAMEWORK and "nccl" in row.back_end
    latency = max(row.latency_s - _NCCL_START_S / steps, row.latency_s / 10) if own else row.latency_s
    return LinkEstimate(
        latency_s=latency,
        rate=row.rate,
        source="net",
        between_hosts=between_hosts,
        nominal_rate=nominal_rate,
        alpha_s=row.alpha_s,
        least_in_turns_s=_GLOO_IN_TURNS if row.back_end in _OVER_GLOO else 0.0,
        error=abs(row.worst_error),
        medium=row.medium if not between_hosts else "network",
        switch_share=row.switch_share,
        efficiency=row.efficiency,
    )


def benchmark_of(key: GroupKey, deployment: Deployment, net: Sequence[NetLink]) -> NetLink | None:
    """Return the benchmark of the same back end over the same kind of link, of the nearest number of workers.

    Of messages that a device queues, as training sends them, where these were measured.
    """
    operations = ("push_pull",) if strategy_named(key.strategy).servers else ("allreduce_queued", "allreduce")
    found = [
        row
        for row in net
        if (row.framework == key.framework or (row.framework == ANY_FRAMEWORK and key.device == "cuda"))
        and row.operation in operations
        and row.between_hosts == deployment.crosses
        and _alike(row.nominal_rate, deployment.bandwidth)
        and row.delay_s == deployment.delay_s
    ]
    key_of = lambda row: (abs(row.workers - deployment.workers), operations.index(row.operation))  # noqa: E731
    return min(found, key=key_of, default=None)


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one / other - 1.0) < _ALIKE


def _net_link(row: NetRow) -> NetLink | None:
    link = link_of(row)
    if link is None or row.fit is None or float(link.start) <= 0.0 or float(link.rate) <= 0.0:
        return None
    hosts = row.cluster["hosts"] if row.cluster else []
    rates = [host["bandwidth_bits_per_s"] for host in hosts if host["bandwidth_bits_per_s"]]
    return NetLink(
        framework=row.framework,
        back_end=row.back_end,
        operation=row.operation,
        launcher=row.launcher,
        workers=row.workers,
        servers=row.servers,
        between_hosts=len(hosts) > 1,
        nominal_rate=min(rates) / _BITS if rates else None,
        delay_s=row.cluster["delay_s"] if row.cluster else 0.0,
        latency_s=float(link.start),
        rate=float(link.rate),
        alpha_s=row.alpha_s.value,
        worst_error=row.fit.worst_error,
    )


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

    best = scipy.optimize.least_squares(errors, np.zeros(2), loss="soft_l1", f_scale=0.1, x_scale=0.3, diff_step=1e-2)
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
