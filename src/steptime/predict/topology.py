"""Topology: where the workers of a configuration run, which processors they share, and over which link they exchange.

``topology_of`` resolves a query, or raises Refusal with the measurement that is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from steptime.catalog.accelerators import OCCUPIED_BYTES
from steptime.catalog.choices import strategy_named
from steptime.catalog.workloads.costs import activation_width, memory_bytes
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.table import build_workload
from steptime.fitting.contention import contention_of
from steptime.fitting.links import (
    LATENCIES,
    LINK_SOURCES,
    PRIOR_SPREADS,
    LinkSpread,
    benchmark_of,
    benchmarked_link,
    inner_link,
    prior_spread,
    sheet_link,
    unknown_card,
)
from steptime.fitting.observation import Deployment, GroupKey
from steptime.fitting.profile import LinkEstimate, MeasuredConfiguration, Profile
from steptime.fitting.step_model import (
    Contention,
)
from steptime.model.link_sheets import BELIEVED, LINKS
from steptime.model.policies import Traffic, has_policy
from steptime.predict.query import Query
from steptime.predict.targets import Target, measured_device
from steptime.units import format_bytes, format_count

_FAR = 2.0
"""Times the most workers measured, up to which an exchange may be predicted from steps alone."""
_CROWDED = 2
"""Workers per processor, up to which contention need not have been measured."""
_PRIOR_ALPHA = 30e-6
_ALPHA_SPREAD = 1.0
_DELAY_SPREAD = 0.2
_PRIOR_SHARE, _SHARE_SPREAD = 0.85, 0.25
"""Of a nominal bandwidth that messages reach, and the spread of its logarithm."""
_EXACT: LinkSpread = (0.0, 0.0)
_SHARDED_THIRDS = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
"""Of weights, gradients and momentum, those that are divided among workers."""


class Refusal(Exception):  # noqa: N818 - it is an answer, not an error
    """The data cannot support a number; the message names the measurement that would."""


@dataclass(frozen=True)
class Topology:
    """Workers, processors and link of a query."""

    deployment: Deployment
    contention: Contention
    link: LinkEstimate | None
    spread: LinkSpread
    """Beyond the uncertainty of the group's own factors."""
    factors: bool
    """Whether the group's own factors on latency and bandwidth hold for this link."""
    nearest: list[MeasuredConfiguration]
    """Configurations of the same strategy."""
    inner: LinkEstimate | None = None
    """Inside hosts, where workers of several hosts exchange that have neighbours."""
    inner_spread: LinkSpread = _EXACT
    inner_factors: bool = False
    """Whether the group's own factors hold for links inside hosts."""


def topology_of(profile: Profile, target: Target, query: Query, workers: int) -> Topology:
    """Return the topology of ``workers`` workers; raises Refusal where it needs a measurement that is missing."""
    own = _own_configurations(target)
    deployment = _deployment(profile, target, query, workers, own)
    contention = _contention(profile, target, query, deployment, own)
    _check_memory(profile, target, deployment, own)
    if workers == 1 and not deployment.servers:
        return Topology(deployment, contention, None, _EXACT, factors=False, nearest=own)
    if not has_policy(target.key.strategy):
        message = (
            f"no communication model for {target.key.strategy}, and a step of {workers} workers does "
            f"not follow from others; measure it: workers: {workers}"
        )
        raise Refusal(message)
    link, spread, factors = _link_asked(profile, target, query, deployment, own)
    found = Topology(deployment, contention, link, spread, factors=factors, nearest=own)
    if not deployment.crosses or min(deployment.workers_per_host, workers) == 1:
        return found
    inner, inner_spread, inner_factors = _inner_asked(profile, target, query, deployment, own)
    return replace(found, inner=inner, inner_spread=inner_spread, inner_factors=inner_factors)


def _inner_asked(
    profile: Profile, target: Target, query: Query, deployment: Deployment, own: Sequence[MeasuredConfiguration]
) -> tuple[LinkEstimate, LinkSpread, bool]:
    """Return the link inside hosts, as ``_link_asked`` does that between them."""
    usual = inner_link(target.key, deployment, profile.net, profile.machine)
    seen = [each.inner if each.deployment.crosses else each.link for each in own]
    known = [link for link in seen if link is not None]
    if query.inner_link or query.inner_bandwidth:
        named = sheet_link(LINKS[query.inner_link], between_hosts=False) if query.inner_link else None
        base = named or (known[0] if known else usual)
        if base is None:  # pragma: no cover - hosts of several workers have a link inside
            message = "hosts of one worker have no link inside"
            raise Refusal(message)
        if query.inner_bandwidth:
            base = base.model_copy(update={"rate": query.inner_bandwidth, "source": "believed"})
        return base, BELIEVED, False
    if usual is not None and usual.source == "net":
        exact = any(link.source == "net" for link in known)
        return usual, _EXACT if exact else prior_spread(usual), exact
    if known:
        return min(known, key=lambda link: LINK_SOURCES.index(link.source)), _EXACT, True
    if usual is None:  # pragma: no cover - as above
        message = "hosts of one worker have no link inside"
        raise Refusal(message)
    return usual, prior_spread(usual), False


def _own_configurations(target: Target) -> list[MeasuredConfiguration]:
    for group in (target.computing, target.exchange):
        if group is not None:
            found = [each for each in group.measured if each.strategy == target.key.strategy]
            if found:
                return found
    return []


def _deployment(
    profile: Profile, target: Target, query: Query, workers: int, own: Sequence[MeasuredConfiguration]
) -> Deployment:
    """Return the largest measured deployment with what a query changes of it."""
    models = own or (target.computing.measured if target.computing else [])
    like = max(models, key=lambda model: model.deployment.workers).deployment
    per_host = _workers_per_host(profile, target, query, workers, like)
    batch = query.global_batch // workers if query.global_batch else like.batch
    return replace(
        _with_servers(like, query, servers=strategy_named(target.key.strategy).servers),
        workers=workers,
        batch=query.batch_per_worker or batch,
        hosts=-(-workers // per_host),
        workers_per_host=per_host,
        emulated=like.emulated and not query.cores_per_host,
        bandwidth=query.bandwidth or (LINKS[query.nic].rate if query.nic else like.bandwidth),
        delay_s=like.delay_s if query.delay_s is None else query.delay_s,
        bucket_mb=query.bucket_mb or like.bucket_mb,
        nics_per_host=query.nics_per_host or like.nics_per_host,
        collectives=query.collectives or like.collectives,
        traffic=Traffic(
            query.gradient_precision or like.traffic.gradient_precision,
            query.compression or like.traffic.compression,
            query.topk_share or like.traffic.kept,
            query.shard or like.traffic.shard,
        ),
        accumulation=query.accumulation or like.accumulation,
    )


def _workers_per_host(profile: Profile, target: Target, query: Query, workers: int, like: Deployment) -> int:
    """Return how many workers share a host: as asked for, as measured, or as many as a host has processors for."""
    if query.workers_per_host:
        return query.workers_per_host
    if query.hosts:
        return -(-workers // query.hosts)
    if like.emulated or like.hosts > 1:
        return like.workers_per_host
    if query.bandwidth or query.nic or query.delay_s is not None:  # links between hosts: there are several
        if profile.machine.cores is None and target.key.device != "cuda":
            return 1
        together = replace(like, workers=workers, workers_per_host=workers)
        return contention_of(together, target.key, profile.machine).processors
    return workers


def _with_servers(like: Deployment, query: Query, *, servers: bool) -> Deployment:
    """Return a deployment with the parameter servers of a query, if the strategy has ``servers``."""
    if not servers:
        return replace(like, servers=0, placement=None, server_hosts=0)
    count = query.servers or max(like.servers, 1)
    placement = query.server_placement or like.placement or "own"
    own_hosts = like.server_hosts and placement == "own"
    return replace(like, servers=count, placement=placement, server_hosts=count if own_hosts else 0)


def _contention(
    profile: Profile, target: Target, query: Query, deployment: Deployment, own: Sequence[MeasuredConfiguration]
) -> Contention:
    found = contention_of(deployment, target.key, profile.machine)
    if target.key.device == "cuda":
        return _devices(found, query, deployment)
    if query.cores_per_host:
        found = replace(found, processors=max(query.cores_per_host // max(target.key.threads, 1), 1))
    measured = [contention_of(each.deployment, target.key, profile.machine).workers for each in own]
    most = max(measured, default=1)
    if found.workers > max(_CROWDED * found.processors, _FAR * most):
        where, remedy = "one host", "say how they are spread: workers_per_host=N interconnect.bandwidth=RATE"
        if deployment.emulated:
            where, remedy = "emulated hosts, which share one machine", "give hosts of their own: cores_per_host=1"
        elif query.workers_per_host:
            where = format_count(deployment.hosts, "host")
            remedy = f"put fewer on a host: workers_per_host={most}; or state what hosts have: cores_per_host=N"
        message = (
            f"{deployment.workers} workers on {where} would be {found.workers} on {found.processors} processors, and "
            f"no more than {most} were measured together; {remedy}, or measure workers: {deployment.workers}"
        )
        raise Refusal(message)
    return found


def _check_memory(
    profile: Profile, target: Target, deployment: Deployment, own: Sequence[MeasuredConfiguration]
) -> None:
    """Raise Refusal where a worker's estimated memory is more than its device has, and was not seen to fit."""
    key = target.key
    device = target.transferred[1] if target.transferred else measured_device(profile.machine)
    fits = any(each.deployment.batch >= deployment.batch for each in own)
    if key.device != "cuda" or device is None or (fits and target.transferred is None):
        return
    workload = build_workload(key.workload, key.input_shape, key.classes)
    factor = _measured_memory(key, workload, own)

    def needed_by(planned: Deployment) -> float:
        return factor * worker_bytes(workload, key.strategy, key.precision, planned) + OCCUPIED_BYTES

    needed = needed_by(deployment)
    if needed <= device.memory:
        return
    per_sample = (needed - needed_by(replace(deployment, batch=0))) or 1.0
    most = deployment.batch - -(-(needed - device.memory) // (per_sample / deployment.batch))
    remedy = f"batch_per_worker={int(most)} may fit" if most >= 1 else "shard its state: strategy=fsdp"
    message = (
        f"{key.workload} with batch {deployment.batch} needs about {format_bytes(needed)} of memory, and a "
        f"{device.name} has {format_bytes(device.memory)}; {remedy}"
    )
    raise Refusal(message)


def _measured_memory(key: GroupKey, workload: Workload, own: Sequence[MeasuredConfiguration]) -> float:
    """Return the memory that the largest measured batch took, over its estimate; 1 where none was measured."""
    measured = [each for each in own if each.device_bytes]
    if not measured:
        return 1.0
    largest = max(measured, key=lambda each: each.deployment.batch)
    return (largest.device_bytes or 0.0) / worker_bytes(workload, key.strategy, key.precision, largest.deployment)


def worker_bytes(workload: Workload, strategy: str, precision: str, deployment: Deployment) -> float:
    """Return the estimated memory of a worker: its share of weights, gradients and momentum, and its activations.

    ZeRO 1 shards the optimizer's state, ZeRO 2 the gradients too, ZeRO 3 and FSDP the weights as well (S. Rajbhandari
    et al., SC 2020, section 5).
    """
    whole = memory_bytes(workload, deployment.batch, dtype_bytes=activation_width(precision))
    sharded = _SHARDED_THIRDS.get(strategy, 0) * 4 * workload.parameter_count
    among = deployment.workers_per_host if deployment.traffic.shard == "host" else deployment.workers
    return whole - sharded * (1 - 1 / max(min(among, deployment.workers), 1))


def _devices(found: Contention, query: Query, deployment: Deployment) -> Contention:
    """Return a device for each worker; raises Refusal where one host would have to hold more than it has."""
    if deployment.hosts > 1 or query.workers_per_host:
        return Contention(found.workers, max(found.processors, found.workers))
    if found.workers > found.processors:
        has = f"{found.processors} GPU{'s'[: found.processors > 1]}"
        message = (
            f"{found.workers} workers need {found.workers} GPUs, and the measured host has {has}; state the hosts: "
            f"gpus_per_host={found.processors} nic_bandwidth=RATE nics_per_host=N"
        )
        raise Refusal(message)
    return found


def _link_asked(
    profile: Profile, target: Target, query: Query, deployment: Deployment, own: Sequence[MeasuredConfiguration]
) -> tuple[LinkEstimate, LinkSpread, bool]:
    """Return the link, its uncertainty beyond the group's factors, and whether these factors hold for it."""
    crosses = deployment.crosses
    known = [each.link for each in own if each.link is not None and each.link.between_hosts == crosses]
    if not crosses and (query.inner_link or query.inner_bandwidth):
        return _inner_asked(profile, target, query, deployment, own)
    asked = crosses and (query.bandwidth is not None or query.delay_s is not None or query.nic is not None)
    row = benchmark_of(target.key, replace(deployment, emulated=crosses), profile.net)
    if row is not None:
        link = benchmarked_link(row, between_hosts=crosses, nominal_rate=row.nominal_rate)
        exact = any(each.source == "net" for each in known)
        return link, _EXACT if exact else prior_spread(link), exact
    if known and not asked:
        best = min(known, key=lambda link: link.source == "prior")
        if query.bandwidth is None:  # a user who knows a host's card asks for hosts that have it, however many
            _check_extrapolation(best, deployment, own)
        return best, _EXACT, True
    if asked:
        return _link_by_query(target.key, deployment, query, known)
    inside = "between workers of one host" if not crosses else "between hosts"
    message = (
        f"no exchange {inside} was measured for {target.key.framework} with {target.key.strategy}; `steptime net` "
        f"would supply it{', or give interconnect.bandwidth=RATE' if crosses else ''}"
    )
    raise Refusal(message)


def _check_extrapolation(link: LinkEstimate, deployment: Deployment, own: Sequence[MeasuredConfiguration]) -> None:
    most = max(each.deployment.workers for each in own)
    if link.source == "prior" and deployment.workers > _FAR * most:
        message = (
            f"{deployment.workers} workers are more than {_FAR:g} times the most measured ({most}), and steps alone do "
            "not show the latency that grows with them; `steptime net` would supply it"
        )
        raise Refusal(message)


def _link_by_query(
    key: GroupKey, deployment: Deployment, query: Query, known: Sequence[LinkEstimate]
) -> tuple[LinkEstimate, LinkSpread, bool]:
    """Return a link of the bandwidth and delay that are asked for, in proportion to a measured link if there is one."""
    measured = next((link for link in known if link.source != "prior"), None)
    if query.nic is not None:
        return _delayed(sheet_link(LINKS[query.nic], between_hosts=True), query), BELIEVED, False
    if measured is not None:
        return _changed_link(measured, deployment, query)
    if query.bandwidth is None:
        message = (
            "interconnect.delay alone does not describe an unmeasured link; give interconnect.bandwidth "
            "too, or measure it: `steptime net`"
        )
        raise Refusal(message)
    reached = {"rate": _PRIOR_SHARE * query.bandwidth, "nominal_rate": query.bandwidth}
    if key.device == "cuda":
        link = _delayed(unknown_card(), query).model_copy(update=reached)
        return link, (_ALPHA_SPREAD, _SHARE_SPREAD), False
    alpha = (query.delay_s or 0.0) + _PRIOR_ALPHA
    latency_spread = _ALPHA_SPREAD if query.delay_s is None else PRIOR_SPREADS["cluster"][0]
    link = LinkEstimate(latency_s=LATENCIES * alpha, source="prior", between_hosts=True, alpha_s=alpha, **reached)
    return link, (latency_spread, _SHARE_SPREAD), False


def _delayed(card: LinkEstimate, query: Query) -> LinkEstimate:
    """Return the link of a card with the delay of a query on top."""
    return card.model_copy(update={"latency_s": card.latency_s + (query.delay_s or 0.0)})


def _changed_link(
    measured: LinkEstimate, deployment: Deployment, query: Query
) -> tuple[LinkEstimate, LinkSpread, bool]:
    """Return a measured link with the bandwidth and delay of a query, of which it reaches the share that it did."""
    reached = measured.rate / measured.nominal_rate if measured.nominal_rate else _PRIOR_SHARE
    rate = measured.rate if query.bandwidth is None else reached * query.bandwidth
    link = measured.model_copy(update={"rate": rate, "nominal_rate": deployment.bandwidth})
    share_spread = 0.0 if measured.nominal_rate else _SHARE_SPREAD
    if query.delay_s is None:
        return link, (0.0, share_spread), True
    # Latencies of the wire per step stay, and so does what is not the wire's; a wire adds to the nominal delay.
    alpha, asked_alpha = (
        measured.alpha_s or measured.latency_s / LATENCIES or _PRIOR_ALPHA,
        query.delay_s + _PRIOR_ALPHA,
    )
    beyond = max(measured.latency_s - LATENCIES * alpha, 0.0)
    latency = beyond + (measured.latency_s - beyond) / alpha * asked_alpha
    return link.model_copy(update={"latency_s": latency, "alpha_s": asked_alpha}), (_DELAY_SPREAD, share_spread), True
