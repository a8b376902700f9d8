"""The link behind a configuration: from the back end's micro-benchmark, from plain sockets, or from a prior."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from steptime.measurements.net.form import NetRow
from steptime.measurements.net.records import NetLaunch
from steptime.model.measured_links import link_of, net_summary
from steptime.predict.observation import Deployment, Observation
from steptime.predict.profile import LinkEstimate, NetLink
from steptime.study.strategies import strategy_named

LATENCIES = 2.0
"""Latencies that a back end usually spends in one step of its algorithm: gloo's ring waits for a rendezvous each."""
_PRIOR_LATENCY = 40e-6
_PRIOR_RATE = 1e9
"""Of workers on one host: a copy through the kernel."""

LinkSpread = tuple[float, float]
"""Standard deviations of the logarithms of a link's latency and bandwidth."""

PRIOR_SPREADS: Mapping[str, LinkSpread] = {"net": (0.15, 0.05), "cluster": (0.7, 0.1), "prior": (2.0, 1.5)}
"""Of the prior, by where the link is known from."""
_MOST_ERROR = 0.7
_BITS = 8
_ALIKE = 0.02


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


def measured_link(observation: Observation, net: Sequence[NetLink]) -> LinkEstimate | None:
    """Return the link of a measured configuration; None for one worker without servers."""
    deployment = observation.deployment
    if deployment.workers == 1 and not deployment.servers:
        return None
    row = benchmark_of(observation.key.framework, observation.key.strategy, deployment, net)
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
    return LinkEstimate(latency_s=_PRIOR_LATENCY, rate=_PRIOR_RATE, source="prior", between_hosts=deployment.crosses)


def benchmarked_link(row: NetLink, *, between_hosts: bool, nominal_rate: float | None) -> LinkEstimate:
    """Return the link that a row of the network benchmark found."""
    return LinkEstimate(
        latency_s=row.latency_s,
        rate=row.rate,
        source="net",
        between_hosts=between_hosts,
        nominal_rate=nominal_rate,
        alpha_s=row.alpha_s,
        error=abs(row.worst_error),
    )


def benchmark_of(framework: str, strategy: str, deployment: Deployment, net: Sequence[NetLink]) -> NetLink | None:
    """Return the benchmark of the same back end over the same kind of link, of the nearest number of workers."""
    operation = "push_pull" if strategy_named(strategy).servers else "allreduce"
    found = [
        row
        for row in net
        if row.framework == framework
        and row.operation == operation
        and row.between_hosts == deployment.crosses
        and _alike(row.nominal_rate, deployment.bandwidth)
        and row.delay_s == deployment.delay_s
    ]
    return min(found, key=lambda row: abs(row.workers - deployment.workers), default=None)


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
