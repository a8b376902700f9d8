"""What one exchange costs between so many workers: a start that links do not notice, and time on the busiest link."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import ALLREDUCE, Link, Real, all_gather, reduce_scatter, star

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Switch:
    """What a back end does with messages of at least a size."""

    size: float
    """Bytes."""
    link: Link
    algorithm: str


@dataclass(frozen=True)
class Interconnect:
    """What joins workers; fields are numbers, or arrays of one value per configuration."""

    link: Link
    """Of a worker, or of a host where several share it."""
    algorithm: str = "ring"
    """Of all-reduces between hosts: a key of ``ALLREDUCE``."""
    workers_per_host: Real = 1.0
    inside: Link | None = None
    """Within a host; None where that costs nothing beside the link between hosts."""
    cards: Real = 1.0
    """Of a host, each with a link of its own; messages are spread over them evenly."""
    switches: tuple[Switch, ...] = ()
    """Sizes from which on something else holds, ascending."""


@dataclass(frozen=True)
class Carriage:
    """Seconds of exchanges that are alone, (..., messages)."""

    start: Array
    """Latencies, during which the link is free for others."""
    transfer: Array
    """Bytes on the busiest link."""

    @property
    def alone(self) -> Array:
        """Both."""
        return self.start + self.transfer


def carriage(operation: str, sizes: Real, workers: Real, interconnect: Interconnect) -> Carriage:
    """Return what messages of one operation cost.

    Args:
        operation: ``allreduce``, ``reduce_scatter``, ``all_gather`` or ``star``.
        sizes: bytes of one worker, (messages,) or (configurations, messages).
        workers: how many, a number or (configurations,).
        interconnect: its numbers, or (configurations,).

    Every formula is linear in latency and in bytes per second, so that its two parts are the formula without bytes
    and without latency.

    >>> from steptime.model.collectives import Link
    >>> carriage("allreduce", 1e9, 4, Interconnect(Link(1e9, 0.001))).alone
    array([1.506])
    """
    found = _plain(operation, sizes, workers, interconnect)
    for switch in interconnect.switches:
        beyond = replace(interconnect, link=switch.link, algorithm=switch.algorithm)
        there, other = np.asarray(sizes) >= switch.size, _plain(operation, sizes, workers, beyond)
        found = Carriage(np.where(there, other.start, found.start), np.where(there, other.transfer, found.transfer))
    return found


def _plain(operation: str, sizes: Real, workers: Real, interconnect: Interconnect) -> Carriage:
    formula = _OPERATIONS[operation](interconnect.algorithm)
    count, width = _column(workers), np.atleast_1d(np.asarray(sizes, float))
    per_host = np.minimum(_column(interconnect.workers_per_host), count)
    hosts = np.ceil(count / per_host)
    # A ring over all workers of a host crosses its card once: what shares the card is one worker's traffic.
    card = replace(interconnect.link, rate=np.asarray(interconnect.link.rate) * interconnect.cards)
    start, transfer = _parts(formula, width, np.where(per_host > 1, hosts, count), card)
    if interconnect.inside is not None:
        within = _parts(formula, width, per_host, interconnect.inside)
        start, transfer = start + within[0], transfer + within[1]
    shape = np.broadcast_shapes(start.shape, transfer.shape)
    return Carriage(np.broadcast_to(start, shape), np.broadcast_to(transfer, shape))


def _parts(formula: Callable[[Real, Real, Link], Real], sizes: Array, workers: Real, link: Link) -> tuple[Array, Array]:
    rate, start = _column(link.rate), _column(link.start)
    return (
        np.asarray(formula(np.zeros_like(sizes), workers, Link(np.inf, start)), float),
        np.asarray(formula(sizes, workers, Link(rate, rendezvous=_column(link.rendezvous))), float),
    )


def _column(value: Real) -> Array:
    return np.asarray(value, float)[..., None]


_OPERATIONS: Mapping[str, Callable[[str], Callable[[Real, Real, Link], Real]]] = {
    "allreduce": lambda algorithm: ALLREDUCE[algorithm],
    "reduce_scatter": lambda _: reduce_scatter,
    "all_gather": lambda _: all_gather,
    "star": lambda _: star,
}
