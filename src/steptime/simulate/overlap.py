"""What of a step's exchanges is waited for: one function for each way in which frameworks exchange."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Link, Real
from steptime.model.interconnect import carriage
from steptime.simulate.configuration import Scene
from steptime.simulate.fusion import Held, fuse
from steptime.simulate.link_contention import in_order, share
from steptime.simulate.parameter_server import Keys, Shop, served_step
from steptime.simulate.queues import updates_in_turn, updates_over_links
from steptime.simulate.weight_gather import Group, gathered
from steptime.worker.communication import PlannedMessage

Array = NDArray[np.float64]

_WAKE_UPS_OF_A_LOOK = 2
"""One to hear what all have, one to answer."""


@dataclass(frozen=True)
class Outcome:
    """Seconds, (configurations,) each."""

    exposed: Array
    """What the slowest worker waits for behind its computing."""
    hidden: Array
    """Exchanges beside computing."""
    stretched: Array
    """By how much exchanges make computing longer."""


def way_of(scene: Scene) -> Callable[[Scene], Outcome]:
    """Return the function that plays the exchanges of a scene's plan."""
    plan = scene.graph.plan
    if not plan.messages:
        return _nothing
    if plan.updated_by == "servers":
        return _served if plan.synchronous else _queued
    if plan.fusion is not None:
        return _fused
    if plan.gathers:
        return _gathered
    alone = plan.in_flight == 1 or len(plan.messages) == 1
    return _in_order if alone and not np.any(scene.crew.slowdown) else _shared


def exchange(scene: Scene) -> Outcome:
    """Play the exchanges of a scene in the way of its plan.

    Where the way does not know of the slowdown, the backward pass is stretched by what is hidden beside it, and played
    once more.
    """
    way = way_of(scene)
    found = way(scene)
    if way in {_shared, _nothing} or not np.any(scene.crew.slowdown):
        return found
    stretched = scene.crew.slowdown * np.minimum(found.hidden, scene.backward)
    again = way(replace(scene, backward=scene.backward + stretched))
    return Outcome(again.exposed, again.hidden, stretched + again.stretched)


def alone(scene: Scene, messages: Sequence[PlannedMessage]) -> tuple[Array, Array]:
    """Return seconds without bytes and seconds on the link of each message, (configurations, messages) both."""
    start, transfer = np.zeros((2, len(scene.workers), len(messages)))
    for operation in {message.operation for message in messages}:
        which = [place for place, message in enumerate(messages) if message.operation == operation]
        sizes = np.array([messages[place].bytes for place in which], float)
        cost = carriage(operation, sizes, scene.workers, scene.carrier)
        start[:, which], transfer[:, which] = cost.start, cost.transfer
    return start, transfer


def _nothing(scene: Scene) -> Outcome:
    none = np.zeros_like(scene.workers)
    return Outcome(none, none, none)


def _in_order(scene: Scene) -> Outcome:
    start, transfer = alone(scene, scene.graph.messages)
    lasting = start + transfer
    behind = in_order(scene.moments, lasting) - scene.computing
    every = scene.graph.plan.every
    return Outcome(behind / every, (lasting.sum(axis=1) - behind) / every, np.zeros_like(behind))


def _shared(scene: Scene) -> Outcome:
    start, transfer = alone(scene, scene.graph.messages)
    played = share(
        np.broadcast_to(scene.moments, start.shape),
        start,
        transfer,
        scene.computing,
        in_flight=scene.graph.plan.in_flight,
        slowdown=np.broadcast_to(scene.crew.slowdown, scene.workers.shape) * (scene.workers > 1),
    )
    behind = np.maximum(played.ends.max(axis=1) - played.computed, 0.0)
    return Outcome(behind, played.busy - behind, played.computed - scene.computing)


def _fused(scene: Scene) -> Outcome:
    fusion = scene.graph.plan.fusion
    if fusion is None:
        message = "the plan of this graph fuses nothing"
        raise ValueError(message)
    unit = carriage("allreduce", 1.0, scene.workers, scene.carrier)
    start, per_byte = (np.broadcast_to(each[..., 0], scene.workers.shape) for each in (unit.start, unit.transfer))
    hops = carriage("allreduce", 0.0, scene.workers, replace(scene.carrier, link=Link(np.inf, 1.0))).start[..., 0]

    def lasting(size: Array) -> Array:
        if scene.interconnect.switches:
            return carriage("allreduce", size[:, None], scene.workers, scene.carrier).alone[:, 0]
        return start + per_byte * size

    negotiation = start if scene.crew.negotiation is None else np.broadcast_to(scene.crew.negotiation, start.shape)
    end, spent, _ = fuse(
        scene.moments,
        scene.sizes,
        lasting,
        threshold=fusion.threshold,
        cycle=np.maximum(fusion.cycle_s, negotiation),
        negotiation=negotiation,
        held=Held(until=scene.computing, look=_WAKE_UPS_OF_A_LOOK * fusion.wake_up_s, exchange=fusion.wake_up_s * hops),
    )
    together = scene.workers > 1
    behind = np.where(together, end - scene.computing, 0.0)
    return Outcome(behind, np.where(together, np.maximum(spent - behind, 0.0), 0.0), np.zeros_like(behind))


def _gathered(scene: Scene) -> Outcome:
    plan, passed, reached = scene.graph.plan, scene.shares.passed, scene.shares.reached
    whole = [PlannedMessage("all_gather", gather.bytes, 0) for gather in plan.gathers]
    gathers = np.sum(alone(scene, whole), axis=0)
    scatters = np.sum(alone(scene, plan.messages), axis=0)
    firsts = [gather.layers[0] for gather in plan.gathers]
    # What lies before the first gathering is a group without any.
    begins = firsts if firsts[0] == 0 else [0, *firsts]
    bounds = [*begins, len(scene.graph.work.layers)]
    none = np.zeros_like(scene.workers)
    groups = []
    for begin, end in pairwise(bounds):
        ahead = reached[end] if end < len(reached) else 1.0
        behind = passed[end] if end < len(passed) else 0.0
        own = firsts.index(begin) if begin in firsts else None
        scattered = [place for place, message in enumerate(plan.messages) if begin <= message.after < end]
        groups.append(
            Group(
                forward=scene.forward * (ahead - reached[begin]),
                backward=scene.backward * (passed[begin] - behind),
                gather=none if own is None else gathers[:, own],
                again=own is not None and plan.gathers[own].again,
                scatter=scatters[:, scattered].sum(axis=1),
            )
        )
    over = gathered(groups, plan.prefetch)
    total = gathers @ np.array([1.0 + gather.again for gather in plan.gathers]) + scatters.sum(axis=1)
    behind = over - scene.computing
    return Outcome(behind, np.maximum(total - behind, 0.0), none)


def _keys(scene: Scene) -> Keys:
    messages, servers = scene.graph.messages, scene.graph.servers
    shares = np.zeros((len(messages), servers))
    for place, message in enumerate(messages):
        if message.server is None:
            shares[place] = 1.0 / servers
        else:
            shares[place, message.server] = 1.0
    layer_of = {tensor.name: tensor.layer for tensor in scene.graph.work.forward_gradients()}
    needed = [scene.shares.reached[min(layer_of[name] for name in message.gradient_names)] for message in messages]
    return Keys(
        sizes=scene.sizes,
        shares=shares,
        ready=np.ascontiguousarray((scene.moments - scene.forward[:, None]).T),
        needed=np.array(needed)[:, None] * scene.forward,
        priorities=np.array([message.priority for message in messages]),
    )


def _shop(scene: Scene, workers: Array, pushes: Array) -> Shop:
    link = scene.interconnect.link
    rate = scene.crew.update_rate
    if rate is None:
        # One update of all weights takes a server what it takes a worker; a server has its part of them.
        with np.errstate(divide="ignore"):
            rate = np.where(scene.update > 0, pushes * scene.sizes.sum() / scene.update, np.inf)
    return Shop(
        workers=workers,
        rate=_wide(link.rate, workers),
        start=_wide(link.start, workers),
        update_rate=_wide(rate, workers),
        colocated=scene.crew.colocated,
    )


def _wide(value: Real, workers: Array) -> Array:
    return np.array(np.broadcast_to(np.asarray(value, float), workers.shape))


def _step(scene: Scene, shop: Shop) -> Array:
    plan = scene.graph.plan
    at_start = plan.pulls == "at_start"
    return served_step(_keys(scene), shop, scene.forward, at_start=at_start, next_overlaps=plan.next_overlaps)


def _served(scene: Scene) -> Outcome:
    shop = _shop(scene, scene.workers, scene.workers)
    behind = _step(scene, shop) - scene.computing
    alone_s = 2.0 * scene.sizes.sum() / shop.rate
    return Outcome(behind, np.maximum(alone_s - behind, 0.0), np.zeros_like(behind))


def _queued(scene: Scene) -> Outcome:
    """Steps of workers that do not wait for each other: how often one comes round, in front of shared servers."""
    one = np.ones_like(scene.workers)
    shop = _shop(scene, one, one)
    lonely = _step(scene, shop)
    held = (_keys(scene).shares * scene.sizes[:, None]).sum(axis=0).max()
    applying = np.clip(held / shop.update_rate, np.finfo(float).tiny, lonely)
    # What is pulled while the rest is still pushed waits for nobody; only what comes behind is a link of its own.
    behind_pushes = _bare(scene, shop) * shop.rate / held - 1.0
    if scene.crew.colocated:
        # In each direction a server's host carries what others push to it and what its own worker pulls of others.
        away = scene.sizes.sum() * (1.0 - 1.0 / scene.graph.servers)
        held = ((scene.workers - 1.0) * held + away) / scene.workers
    pushing = held / shop.rate
    pulling = np.maximum(pushing * behind_pushes, 0.0)
    if scene.crew.colocated:
        # Alone, a worker beside a server has it to itself, which says nothing of a round among others.
        lonely = np.maximum(lonely, pushing + pulling)
    pushing = np.minimum(pushing, lonely)
    pulling = np.minimum(pulling, lonely - pushing)
    strays = np.asarray(scene.crew.spread.transient) * scene.computing
    over_links = updates_over_links(scene.workers, lonely - pushing - pulling, [pushing, pulling], strays)
    at_servers = updates_in_turn(scene.workers, lonely - applying, [applying], strays)
    behind = scene.workers / np.minimum(over_links, at_servers) - scene.computing
    alone_s = 2.0 * scene.sizes.sum() / shop.rate
    return Outcome(behind, np.maximum(alone_s - behind, 0.0), np.zeros_like(behind))


def _bare(scene: Scene, shop: Shop) -> Array:
    """Return the seconds of one exchange of a worker that computes nothing, over links of its own without latency."""
    none = np.zeros_like(scene.workers)
    shop = replace(shop, start=none, update_rate=np.full_like(none, np.inf), colocated=False)
    still = replace(scene, forward=none, backward=none)
    return served_step(_keys(still), shop, none, at_start=scene.graph.plan.pulls == "at_start", next_overlaps=False)
