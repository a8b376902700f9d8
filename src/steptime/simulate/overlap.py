"""Overlap of exchanges with computing: one rule for each way in which frameworks exchange gradients.

A rule returns how many seconds of the exchanges the slowest worker waits for, and how many hide behind computing.
Sources: S. Shi et al., arXiv 1805.03812 and 1811.11141, for the recursion over buckets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import ALLREDUCE, SOCKET_BUFFER_BYTES, Link, Real, answered
from steptime.model.interconnect import communication_cost
from steptime.model.synchronous_sgd import finish
from steptime.simulate.configuration import Configurations
from steptime.simulate.fusion import BusyCore, Readiness, fuse, share_link
from steptime.simulate.parameter_server import (
    PushedKeys,
    ServerGroup,
    simulate_served_step,
    updates_in_turn,
    updates_over_links,
)
from steptime.worker.communication import PlannedMessage

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LayerGroup:
    """Neighbouring layers that are gathered together; seconds, (configurations,) each."""

    forward: Array
    backward: Array
    gather: Array
    """Of one gathering; 0 for layers whose weights are there."""
    again: bool
    """Whether the backward pass gathers too."""
    scatter: Array
    """Of the exchange behind the group's backward pass."""


def finish_gathered(groups: Sequence[LayerGroup], prefetch: int) -> Array:
    """Return when both passes and all exchanges are over, (configurations,).

    One exchange at a time. With ``prefetch`` 0 computing waits for each of them; with k the exchange for a group is
    started when the group k before it begins, and gradients are scattered beside the next group.

    Args:
        groups: in the order of the forward pass.
        prefetch: how many groups gatherings run ahead.
    """
    nothing = np.zeros_like(np.asarray(groups[0].forward, float))
    forward = [(group.forward, group.gather, nothing) for group in groups]
    backward = [(group.backward, group.gather * group.again, group.scatter) for group in reversed(groups)]
    link, clock = _finish_pass(backward, prefetch, *_finish_pass(forward, prefetch, nothing, nothing))
    over: Array = np.maximum(link, clock)
    return over


def _finish_pass(
    steps: Sequence[tuple[Array, Array, Array]], prefetch: int, link: Array, clock: Array
) -> tuple[Array, Array]:
    """Return when link and processor are free behind one pass; steps are (computing, gathering, scattering)."""
    there: list[Array] = []
    for place, (computing, gather, scatter) in enumerate(steps):
        if len(there) == place:
            link, there = _fetch(link, clock, gather, there)
        begin = np.maximum(clock, there[place])
        for _, ahead, _ in steps[len(there) : place + prefetch + 1]:
            link, there = _fetch(link, np.maximum(clock, there[place]), ahead, there)
        clock = begin + computing
        link = np.where(scatter > 0, np.maximum(link, clock) + scatter, link)
        if prefetch == 0:
            clock = np.where(scatter > 0, link, clock)
    return link, clock


def _fetch(link: Array, asked: Array, gather: Array, there: list[Array]) -> tuple[Array, list[Array]]:
    end = np.where(gather > 0, np.maximum(link, asked) + gather, 0.0)
    return np.maximum(link, end), [*there, end]


_WAKE_UPS_OF_A_LOOK = 2
"""One to hear what all have, one to answer."""


@dataclass(frozen=True)
class ExchangeTimes:
    """Seconds of the exchanges of one step, (configurations,) each."""

    exposed: Array
    """Exchanges that the slowest worker waits for behind its computing."""
    hidden: Array
    """Exchanges beside computing."""


def overlap_rule(configurations: Configurations) -> Callable[[Configurations], ExchangeTimes]:
    """Return the rule for the exchanges of the configurations' plan."""
    plan = configurations.graph.plan
    if not plan.messages:
        return _nothing
    if plan.updated_by == "servers":
        return _served if plan.synchronous else _queued
    if plan.fusion is not None:
        return _fused
    if plan.gathers:
        return _gathered
    if plan.messages[0].operation == "star":
        return _star
    alone = plan.in_flight == 1 or len(plan.messages) == 1
    return _in_order if alone else _shared


def simulate_exchange(configurations: Configurations) -> ExchangeTimes:
    """Simulate the exchanges of a step by the rule of its plan."""
    return overlap_rule(configurations)(configurations)


def costs_alone(configurations: Configurations, messages: Sequence[PlannedMessage]) -> tuple[Array, Array]:
    """Return seconds without bytes and seconds on the link of each message, (configurations, messages) both."""
    start, transfer = np.zeros((2, len(configurations.workers), len(messages)))
    for operation in {message.operation for message in messages}:
        which = [place for place, message in enumerate(messages) if message.operation == operation]
        sizes = np.array([messages[place].bytes for place in which], float)
        cost = communication_cost(operation, sizes, configurations.workers, configurations.collective_interconnect)
        start[:, which], transfer[:, which] = cost.start, cost.transfer
    return start, transfer


def _nothing(configurations: Configurations) -> ExchangeTimes:
    none = np.zeros_like(configurations.workers)
    return ExchangeTimes(none, none)


def _in_order(configurations: Configurations) -> ExchangeTimes:
    start, transfer = costs_alone(configurations, configurations.graph.messages)
    lasting = start + transfer
    behind = finish(configurations.ready_s, lasting) - configurations.computing
    every = configurations.graph.plan.every
    return ExchangeTimes(behind / every, (lasting.sum(axis=1) - behind) / every)


def _star(configurations: Configurations) -> ExchangeTimes:
    """A message of all gradients to the worker in the middle, and its answers.

    The middle computes on as soon as sockets have its answers, the others behind theirs. Workers that share processors
    therefore do not all compute at once: while the middle is ahead, it has a processor, and it leaves one to the others
    behind. Who computes at a time shares the processors evenly.
    """
    start, transfer = (each[:, 0] for each in costs_alone(configurations, configurations.graph.messages))
    workers, processors = configurations.workers, np.asarray(configurations.group.processors, float)
    alone = configurations.computing / np.maximum(np.ceil(workers / processors), 1.0)
    size = configurations.sizes[0]
    first = answered(size, workers)
    sent = np.maximum((workers - 1.0) * size - SOCKET_BUFFER_BYTES, 0.0)
    ahead = np.clip((first - sent) / (first + (workers - 1.0) * size) * transfer, 0.0, alone)
    computed = (alone - ahead) * np.maximum(workers / processors, 1.0) + ahead * np.maximum(
        (workers - 1.0) / processors, 1.0
    )
    lasting = start + transfer
    behind = np.maximum(lasting + computed - configurations.computing, 0.0)
    return ExchangeTimes(behind, np.maximum(lasting - behind, 0.0))


def _shared(configurations: Configurations) -> ExchangeTimes:
    start, transfer = costs_alone(configurations, configurations.graph.messages)
    found = share_link(
        np.broadcast_to(configurations.ready_s, start.shape),
        start,
        transfer,
        configurations.computing,
        in_flight=configurations.graph.plan.in_flight,
    )
    behind = np.maximum(found.ends.max(axis=1) - configurations.computing, 0.0)
    return ExchangeTimes(behind, found.busy - behind)


def _fused(configurations: Configurations) -> ExchangeTimes:
    fusion = configurations.graph.plan.fusion
    if fusion is None:
        message = "the plan of this graph fuses nothing"
        raise ValueError(message)
    connected = configurations.collective_interconnect
    unit = communication_cost("allreduce", 1.0, configurations.workers, connected)
    start, per_byte = (
        np.broadcast_to(each[..., 0], configurations.workers.shape) for each in (unit.start, unit.transfer)
    )
    hops = communication_cost(
        "allreduce",
        0.0,
        configurations.workers,
        replace(connected, outer=Link(np.inf, 1.0), algorithm=_hopping(connected.algorithm)),
    ).start[..., 0]

    def lasting(size: Array) -> Array:
        if connected.switches or connected.algorithm not in ALLREDUCE:
            return communication_cost("allreduce", size[:, None], configurations.workers, connected).total[:, 0]
        return start + per_byte * size

    wake_up_s = np.asarray(configurations.group.wake_up_s, float)
    end, spent, _ = fuse(
        Readiness(configurations.ready, configurations.forward, configurations.backward),
        configurations.sizes,
        lasting,
        threshold=fusion.threshold,
        cycle=np.maximum(fusion.cycle_s, start),
        negotiation=start,  # takes what an all-reduce without bytes takes
        busy_core=BusyCore(
            until=configurations.computing,
            look=_WAKE_UPS_OF_A_LOOK * wake_up_s,
            exchange=wake_up_s * hops,
        ),
    )
    together = configurations.workers > 1
    behind = np.where(together, end - configurations.computing, 0.0)
    return ExchangeTimes(behind, np.where(together, np.maximum(spent - behind, 0.0), 0.0))


def _hopping(algorithm: str) -> str:
    """Return the algorithm whose steps wake threads up: a ring, where a library chooses by size."""
    return algorithm if algorithm in ALLREDUCE else "ring"


def _gathered(configurations: Configurations) -> ExchangeTimes:
    plan, passed, reached = configurations.graph.plan, configurations.shares.passed, configurations.shares.reached
    whole = [PlannedMessage(gather.operation, gather.bytes, 0) for gather in plan.gathers]
    gathers = np.sum(costs_alone(configurations, whole), axis=0)
    scatters = np.sum(costs_alone(configurations, plan.messages), axis=0)
    firsts = [gather.layers[0] for gather in plan.gathers]
    # What lies before the first gathering is a group without any.
    begins = firsts if firsts[0] == 0 else [0, *firsts]
    bounds = [*begins, len(configurations.graph.work.layers)]
    none = np.zeros_like(configurations.workers)
    groups = []
    for begin, end in pairwise(bounds):
        ahead = reached[end] if end < len(reached) else 1.0
        behind = passed[end] if end < len(passed) else 0.0
        own = firsts.index(begin) if begin in firsts else None
        scattered = [place for place, message in enumerate(plan.messages) if begin <= message.after < end]
        groups.append(
            LayerGroup(
                forward=configurations.forward * (ahead - reached[begin]),
                backward=configurations.backward * (passed[begin] - behind),
                gather=none if own is None else gathers[:, own],
                again=own is not None and plan.gathers[own].again,
                scatter=scatters[:, scattered].sum(axis=1),
            )
        )
    over = finish_gathered(groups, plan.prefetch)
    total = gathers @ np.array([1.0 + gather.again for gather in plan.gathers]) + scatters.sum(axis=1)
    behind = over - configurations.computing
    return ExchangeTimes(behind, np.maximum(total - behind, 0.0))


def _pushed_keys(configurations: Configurations) -> PushedKeys:
    messages, servers = configurations.graph.messages, configurations.graph.servers
    shares = np.zeros((len(messages), servers))
    for place, message in enumerate(messages):
        if message.server is None:
            shares[place] = 1.0 / servers
        else:
            shares[place, message.server] = 1.0
    layer_of = {tensor.name: tensor.layer for tensor in configurations.graph.work.forward_gradients()}
    needed = [
        configurations.shares.reached[min(layer_of[name] for name in message.gradient_names)] for message in messages
    ]
    return PushedKeys(
        sizes=configurations.sizes,
        shares=shares,
        ready=np.ascontiguousarray((configurations.ready_s - configurations.forward[:, None]).T),
        needed=np.array(needed)[:, None] * configurations.forward,
        priorities=np.array([message.priority for message in messages]),
    )


def _server_group(configurations: Configurations, workers: Array, pushes: Array) -> ServerGroup:
    connected = configurations.interconnect
    link = connected.outer
    # One update of all weights takes a server what it takes a worker; a server has its part of them.
    with np.errstate(divide="ignore"):
        rate = np.where(configurations.update > 0, pushes * configurations.sizes.sum() / configurations.update, np.inf)
    return ServerGroup(
        workers=workers,
        rate=_wide(link.rate, workers) * _wide(connected.nics_per_host, workers),
        start=_wide(link.start, workers),
        update_rate=_wide(rate, workers),
        colocated=configurations.group.colocated,
        workers_per_host=np.minimum(_wide(connected.workers_per_host, workers), workers),
    )


def _wide(value: Real, workers: Array) -> Array:
    return np.array(np.broadcast_to(np.asarray(value, float), workers.shape))


def _step(configurations: Configurations, servers: ServerGroup) -> Array:
    plan = configurations.graph.plan
    at_start = plan.pulls == "at_start"
    return simulate_served_step(
        _pushed_keys(configurations),
        servers,
        configurations.forward,
        at_start=at_start,
        next_overlaps=plan.next_overlaps,
    )


def _served(configurations: Configurations) -> ExchangeTimes:
    servers = _server_group(configurations, configurations.workers, configurations.workers)
    behind = _step(configurations, servers) - configurations.computing
    alone_s = 2.0 * configurations.sizes.sum() / servers.rate
    return ExchangeTimes(behind, np.maximum(alone_s - behind, 0.0))


def _queued(configurations: Configurations) -> ExchangeTimes:
    """Steps of workers that do not wait for each other: how often one comes round, in front of shared servers."""
    one = np.ones_like(configurations.workers)
    servers = _server_group(configurations, one, one)
    unshared = _step(configurations, servers)
    most_bytes = (_pushed_keys(configurations).shares * configurations.sizes[:, None]).sum(axis=0).max()
    applying = np.clip(most_bytes / servers.update_rate, np.finfo(float).tiny, unshared)
    # What is pulled while the rest is still pushed does not wait; only what comes behind is a link of its own.
    behind_pushes = _bare(configurations, servers) * servers.rate / most_bytes - 1.0
    if configurations.group.colocated:
        # In each direction a server's host carries what others push to it and what its own worker pulls of others.
        away = configurations.sizes.sum() * (1.0 - 1.0 / configurations.graph.servers)
        most_bytes = ((configurations.workers - 1.0) * most_bytes + away) / configurations.workers
    pushing = most_bytes / servers.rate
    pulling = np.maximum(pushing * behind_pushes, 0.0)
    if configurations.group.colocated:
        # Alone, a worker beside a server has it to itself, unlike in a round among others.
        unshared = np.maximum(unshared, pushing + pulling)
    pushing = np.minimum(pushing, unshared)
    pulling = np.minimum(pulling, unshared - pushing)
    variation = np.asarray(configurations.group.spread.transient) * configurations.computing
    over_links = updates_over_links(
        configurations.workers,
        unshared - pushing - pulling,
        [pushing, pulling],
        variation,
        ramp_s=configurations.interconnect.outer.ramp_s,
    )
    at_servers = updates_in_turn(configurations.workers, unshared - applying, [applying], variation)
    behind = configurations.workers / np.minimum(over_links, at_servers) - configurations.computing
    alone_s = 2.0 * configurations.sizes.sum() / servers.rate
    return ExchangeTimes(behind, np.maximum(alone_s - behind, 0.0))


def _bare(configurations: Configurations, servers: ServerGroup) -> Array:
    """Return the seconds of one exchange of a worker that computes nothing, over links of its own without latency."""
    none = np.zeros_like(configurations.workers)
    servers = replace(servers, start=none, update_rate=np.full_like(none, np.inf), colocated=False)
    still = replace(configurations, forward=none, backward=none)
    return simulate_served_step(
        _pushed_keys(still), servers, none, at_start=configurations.graph.plan.pulls == "at_start", next_overlaps=False
    )
