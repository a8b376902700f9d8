"""The emulated cluster of a trial as its launches found it: what was measured, and what was asked for."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from steptime.flags import FOREIGN_CORES
from steptime.results.json_form import JsonForm
from steptime.results.records import Launch


class Spread(JsonForm):
    """A quantity over launches: its median, and the least and the most that any launch had."""

    value: float
    least: float
    most: float


class HostForm(JsonForm):
    """One host and its link to the switch."""

    name: str
    roles: list[str]
    """``worker-0``, ``server-1``, …"""
    cores: list[int]
    nominal_bandwidth_bits_per_s: float | None
    cpu_quota_cores: float | None
    sent_bytes: Spread
    """During a launch."""
    received_bytes: Spread
    throttled_s: Spread | None
    """How long its quota held it back."""


class LinkForm(JsonForm):
    """From one host to another, measured with plain sockets before each launch."""

    source: str
    target: str
    alpha_s: Spread
    bandwidth_bits_per_s: Spread
    message_bytes: int
    """Of the measurement."""
    nominal_bandwidth_bits_per_s: float | None
    """The lower one of both ends."""
    nominal_delay_s: float


class ClusterForm(JsonForm):
    """The hosts that the launcher made for a trial."""

    kind: str
    launches: int
    delay_by: str | None
    cpu_groups: str | None
    """What keeps load of other processes away and holds quotas."""
    hosts: list[HostForm]
    links: list[LinkForm]
    foreign_cores: Spread | None
    """Cores' worth of work that was not the launch's."""
    foreign_load: bool | None
    """Whether that was above 0.1 in any launch: then times are too long."""


def cluster_of(launches: Sequence[Launch]) -> ClusterForm | None:
    """Return the cluster that ``launches`` of one trial ran on; None if the launcher made none."""
    found = [(launch, launch.cluster) for launch in launches if launch.cluster]
    if not found:
        return None
    clusters = [cluster for _, cluster in found]
    last = clusters[-1]
    foreign = [cores for launch, _ in found if (cores := launch.noise.get("foreign_cpu_cores")) is not None]
    return ClusterForm(
        kind=last["kind"],
        launches=len(found),
        delay_by=last["delay_by"],
        cpu_groups=last["cpu_groups"],
        hosts=[
            _host(host, [each["hosts"][index] for each in clusters if len(each["hosts"]) > index])
            for index, host in enumerate(last["hosts"])
        ],
        links=[_link(path, last, clusters) for path in last["paths"]],
        foreign_cores=_spread(foreign),
        foreign_load=max(foreign) > FOREIGN_CORES if foreign else None,
    )


def _host(last: dict[str, Any], every: Sequence[dict[str, Any]]) -> HostForm:
    return HostForm(
        name=last["name"],
        roles=last["roles"],
        cores=last["cores"],
        nominal_bandwidth_bits_per_s=last["bandwidth_bits_per_s"],
        cpu_quota_cores=last["cpu_quota_cores"],
        sent_bytes=_sure(each["sent_bytes"] for each in every),
        received_bytes=_sure(each["received_bytes"] for each in every),
        throttled_s=_spread(each["throttled_s"] for each in every if each["throttled_s"] is not None),
    )


def _link(path: dict[str, Any], last: dict[str, Any], clusters: Sequence[dict[str, Any]]) -> LinkForm:
    ends = (path["source"], path["target"])
    same = [each for cluster in clusters for each in cluster["paths"] if (each["source"], each["target"]) == ends]
    rates = [rate for end in ends if (rate := last["hosts"][end]["bandwidth_bits_per_s"]) is not None]
    return LinkForm(
        source=last["hosts"][ends[0]]["name"],
        target=last["hosts"][ends[1]]["name"],
        alpha_s=_sure(each["alpha_s"] for each in same),
        bandwidth_bits_per_s=_sure(each["bandwidth_bits_per_s"] for each in same),
        message_bytes=path["message_bytes"],
        nominal_bandwidth_bits_per_s=min(rates, default=None),
        nominal_delay_s=last["delay_s"],
    )


def _spread(values: Iterable[float]) -> Spread | None:
    known = list(values)
    return _sure(known) if known else None


def _sure(values: Iterable[float]) -> Spread:
    known = [float(each) for each in values]
    return Spread(value=median(known), least=min(known), most=max(known))
