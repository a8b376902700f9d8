"""The interconnect and the cost of one collective operation over it: latencies, and time on the busiest link."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import (
    ALLREDUCE,
    Link,
    Real,
    all_gather,
    library_algorithm,
    reduce_scatter,
    ring,
    star,
)
from steptime.model.nccl import NcclLinks, nccl_cost

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Switch:
    """Another link and algorithm that a back end uses for messages of at least a size."""

    size: float
    """Bytes."""
    link: Link
    algorithm: str


@dataclass(frozen=True)
class Interconnect:
    """The links that join workers; fields are numbers, or arrays of one value per configuration."""

    outer: Link
    """Of each card between hosts; of a worker, where each has a host of its own."""
    algorithm: str = "ring"
    """Of all-reduces: a key of ``ALLREDUCE``, or one of ``LIBRARIES``, which chooses by size."""
    workers_per_host: Real = 1.0
    switches: tuple[Switch, ...] = ()
    """By ascending size."""
    inner: Link | None = None
    """Of a worker to the others of its host; None if they cost nothing beside the cards."""
    nics_per_host: Real = 1.0
    """Cards of a host, over which rings are spread."""


@dataclass(frozen=True)
class CommunicationCost:
    """Seconds of exchanges that have the interconnect to themselves, (..., messages)."""

    start: Array
    """Latencies, during which the link is free for other exchanges."""
    transfer: Array
    """Bytes on the busiest link."""

    @property
    def total(self) -> Array:
        """Latencies and transfer."""
        return self.start + self.transfer


@dataclass(frozen=True)
class _Places:
    """Where workers are, and the links between them; (configurations, 1)."""

    workers: Array
    hosts: Array
    inner: Link
    cards: Link
    """All cards of a host together."""

    @property
    def per_host(self) -> Array:
        """Workers of the fullest host."""
        return np.ceil(self.workers / self.hosts)


_IN_HOST = "host_"


def communication_cost(operation: str, sizes: Real, workers: Real, interconnect: Interconnect) -> CommunicationCost:
    """Return the cost of messages of one operation.

    Args:
        operation: ``allreduce``, ``reduce_scatter``, ``all_gather`` or ``star``; ``host_all_gather`` and
            ``host_reduce_scatter`` among the workers of each host; ``hosts_allreduce`` between hosts, of the shards
            that their workers have of one message.
        sizes: bytes of one worker, (messages,) or (configurations, messages).
        workers: how many, a number or (configurations,).
        interconnect: its numbers, or (configurations,).

    Every algorithm is linear in latency and in bytes per second, so that its two parts are the formula without bytes
    and the formula without latency.

    >>> from steptime.model.collectives import Link
    >>> communication_cost("allreduce", 1e9, 4, Interconnect(Link(1e9, 0.001))).total
    array([1.506])
    """
    if operation.startswith(_IN_HOST):
        per_host = np.minimum(interconnect.workers_per_host, workers)
        return communication_cost(operation.removeprefix(_IN_HOST), sizes, per_host, interconnect)
    if operation == "hosts_allreduce":
        hosts = np.ceil(np.asarray(workers, float) / np.minimum(interconnect.workers_per_host, workers))
        return communication_cost("allreduce", sizes, hosts, replace(interconnect, workers_per_host=1.0, inner=None))
    found = _cost_of_algorithm(operation, sizes, workers, interconnect)
    for switch in interconnect.switches:
        beyond = replace(interconnect, outer=switch.link, algorithm=switch.algorithm)
        there, other = np.asarray(sizes) >= switch.size, _cost_of_algorithm(operation, sizes, workers, beyond)
        found = CommunicationCost(
            np.where(there, other.start, found.start), np.where(there, other.transfer, found.transfer)
        )
    if not np.any(interconnect.outer.least):
        return found
    alike = replace(interconnect, outer=Link(np.inf, interconnect.outer.least), inner=None)
    least = _cost_of_algorithm(operation, sizes, workers, alike).start
    return CommunicationCost(np.maximum(found.start, least - found.transfer), found.transfer)


def _cost_of_algorithm(operation: str, sizes: Real, workers: Real, interconnect: Interconnect) -> CommunicationCost:
    places = _places(workers, interconnect)
    width = np.atleast_1d(np.asarray(sizes, float))
    found = _cost_by_formula(operation, width, places, interconnect)
    inner = interconnect.inner or Link(np.inf)
    if not (interconnect.outer.efficiency or inner.efficiency):
        return found
    share = np.where(places.hosts > 1, interconnect.outer.efficiency_at(width), inner.efficiency_at(width))
    return CommunicationCost(found.start / share, found.transfer / share)


def _cost_by_formula(operation: str, width: Array, places: _Places, interconnect: Interconnect) -> CommunicationCost:
    if operation == "star":
        return _star(width, places)
    if interconnect.algorithm == "nccl":
        links = NcclLinks(places.inner, places.cards, places.workers, places.hosts)
        return CommunicationCost(*nccl_cost(operation, width, links))
    if operation != "allreduce":
        return _ring(width, places, 1.0, reduce_scatter if operation == "reduce_scatter" else all_gather)
    costs = [
        (_ring(width, places, 2.0, ring) if name == "ring" else _levels(width, places, ALLREDUCE[name]), chosen)
        for name, chosen in library_algorithm(interconnect.algorithm, width)
    ]
    found = costs[0][0]
    for cost, chosen in costs[1:]:
        found = CommunicationCost(
            np.where(chosen, cost.start, found.start), np.where(chosen, cost.transfer, found.transfer)
        )
    return found


def _places(workers: Real, interconnect: Interconnect) -> _Places:
    count = _column(workers)
    per_host = np.minimum(_column(interconnect.workers_per_host), count)
    outer = _columns(interconnect.outer, _column(interconnect.nics_per_host))
    inner = Link(np.inf) if interconnect.inner is None else _columns(interconnect.inner)
    return _Places(count, np.ceil(count / per_host), inner, outer)


def _columns(link: Link, together: Array | float = 1.0) -> Link:
    """Return a link with numbers of (configurations, 1); ``together`` of its kind are used at once."""
    return replace(
        link,
        rate=_column(link.rate) * together,
        latency=_column(link.start),
        latencies_per_step=1.0,
        rendezvous=_column(link.rendezvous),
        switch_share=_column(link.switch_share),
    )


def _ring(
    width: Array, places: _Places, passes: float, formula: Callable[[Real, Real, Link], Real]
) -> CommunicationCost:
    """Return the cost of one ring through all workers, which crosses from host to host.

    Each worker's link and the cards of each host carry the traffic of one worker, at once; of the steps that follow
    each other, ``(p-h)`` in each pass are inside hosts and ``(h-1)`` between them. What crosses hosts passes the inner
    link on its way to the card, so that no exchange gets quicker by leaving a host.

    A worker sends a piece when the piece before it has left and its neighbour's has come. A chain of pieces that wait
    for each other therefore either queues at the slowest link, for all of its bytes, or goes round with the latencies
    and the bytes of the links that it passes, and the longer one counts (the largest mean of a cycle of such a max-plus
    system: F. Baccelli et al., Synchronization and Linearity, 1992): latencies hide behind a slow link.
    """
    inside = np.asarray(places.inner.start, float)
    between = np.maximum(places.cards.start, inside)
    crossing = places.hosts - 1
    starts = passes * (crossing * between + (places.workers - places.hosts) * inside)
    # A single host of several workers does not use its cards.
    outside = np.where(places.hosts > 1, places.workers, 1.0)
    over_cards = np.asarray(formula(width, outside, _rate(places.cards)), float)
    over_inner = np.asarray(formula(width, places.workers, _rate(places.inner)), float)
    longest = np.maximum(over_cards, over_inner)
    inner_share = (places.workers - places.hosts) / np.maximum(places.workers - 1, 1)
    return _together(np.maximum(starts - inner_share * (longest - over_inner), 0.0), longest)


def _levels(width: Array, places: _Places, formula: Callable[[Real, Real, Link], Real]) -> CommunicationCost:
    """Return the cost of an algorithm that exchanges inside hosts, then between them as one worker a host would."""
    several = places.per_host > 1
    peers = np.where(several, places.hosts, places.workers)
    none = np.zeros_like(width)
    starts = np.asarray(formula(none, peers, Link(np.inf, places.cards.start)), float)
    transfers = np.asarray(formula(width, peers, _rate(places.cards)), float)
    if np.any(several):
        inside = np.where(several, places.per_host, 1.0)
        starts = starts + np.asarray(formula(none, inside, Link(np.inf, places.inner.start)), float)
        transfers = transfers + np.asarray(formula(width, inside, _rate(places.inner)), float)
    return _together(starts, transfers)


def _star(width: Array, places: _Places) -> CommunicationCost:
    """Return the cost of a star: the first host's card carries the messages of all workers of other hosts."""
    several = places.per_host > 1
    away = np.where(several, places.workers - places.per_host, places.workers - 1)
    starts = np.asarray(star(np.zeros_like(width), away + 1, Link(np.inf, places.cards.start)), float)
    transfers = np.asarray(star(width, away + 1, _rate(places.cards)), float)
    if np.any(several):
        inside = np.where(several, places.workers, 1.0)
        starts = np.maximum(starts, star(np.zeros_like(width), inside, Link(np.inf, places.inner.start)))
        transfers = np.maximum(transfers, star(width, inside, _rate(places.inner)))
    return _together(starts, transfers)


def _rate(link: Link) -> Link:
    """Return a link without latency."""
    return Link(link.rate, rendezvous=link.rendezvous, sends_ahead=link.sends_ahead)


def _together(starts: Array, transfers: Array) -> CommunicationCost:
    shape = np.broadcast_shapes(starts.shape, transfers.shape)
    return CommunicationCost(np.broadcast_to(starts, shape), np.broadcast_to(transfers, shape))


def _column(value: Real) -> Array:
    return np.asarray(value, float)[..., None]
