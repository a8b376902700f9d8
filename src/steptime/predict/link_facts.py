"""What is known of the link behind a configuration: the back end's micro-benchmark, plain sockets, or nothing."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from steptime.measurements.net.form import NetRow
from steptime.measurements.net.records import NetLaunch
from steptime.model.measured_links import link_of, net_summary
from steptime.predict.observation import Observation, Setting
from steptime.predict.profile import LinkFacts, NetLink
from steptime.study.strategies import strategy_named

LATENCIES = 2.0
"""Latencies that a back end usually spends in one step of its algorithm: gloo's ring waits for a rendezvous each."""
_BELIEVED_START = 40e-6
_BELIEVED_RATE = 1e9
"""Of workers on one host: a copy through the kernel."""

Spread = tuple[float, float]
SPREADS: Mapping[str, Spread] = {"net": (0.15, 0.05), "cluster": (0.7, 0.1), "believed": (2.0, 1.5)}
"""Standard deviations of the logarithms of start and rate that are believed beforehand."""
_MOST_ERROR = 0.7
_BITS = 8
_ALIKE = 0.02


def spread_of(link: LinkFacts) -> Spread:
    """Return the standard deviations of the logarithms of a link's start and rate that are believed beforehand.

    Where no straight line describes the micro-benchmark, what it missed is not known to be the start or the rate.
    """
    start, rate = SPREADS[link.source]
    error = min(link.error, _MOST_ERROR)
    return float(np.hypot(start, error)), float(np.hypot(rate, error / 2.0))


def net_links(launches: Iterable[NetLaunch]) -> list[NetLink]:
    """Return the rows of the network benchmark that were fitted."""
    return [each for each in map(_net_link, net_summary(launches).rows) if each]


def link_behind(observation: Observation, net: Sequence[NetLink]) -> LinkFacts | None:
    """Return the link of a measured configuration; None where nobody talks to anybody."""
    setting = observation.setting
    if setting.workers == 1 and not setting.servers:
        return None
    row = matching(observation.key.framework, observation.key.strategy, setting, net)
    nominal = setting.bandwidth
    if row is not None:
        return LinkFacts(
            start_s=row.start_s,
            rate=row.rate,
            source="net",
            between_hosts=setting.crosses,
            nominal_rate=nominal,
            alpha_s=row.alpha_s,
            error=abs(row.worst_error),
        )
    if setting.crosses and observation.alpha_s is not None and observation.rate is not None:
        return LinkFacts(
            start_s=LATENCIES * observation.alpha_s,
            rate=observation.rate,
            source="cluster",
            between_hosts=True,
            nominal_rate=nominal,
            alpha_s=observation.alpha_s,
        )
    return LinkFacts(start_s=_BELIEVED_START, rate=_BELIEVED_RATE, source="believed", between_hosts=setting.crosses)


def matching(framework: str, strategy: str, setting: Setting, net: Sequence[NetLink]) -> NetLink | None:
    """Return the benchmark of the same back end over the same kind of link, of the nearest number of workers."""
    operation = "push_pull" if strategy_named(strategy).servers else "allreduce"
    found = [
        row
        for row in net
        if row.framework == framework
        and row.operation == operation
        and row.between_hosts == setting.crosses
        and _alike(row.nominal_rate, setting.bandwidth)
        and row.delay_s == setting.delay_s
    ]
    return min(found, key=lambda row: abs(row.workers - setting.workers), default=None)


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
        start_s=float(link.start),
        rate=float(link.rate),
        alpha_s=row.alpha_s.value,
        worst_error=row.fit.worst_error,
    )
