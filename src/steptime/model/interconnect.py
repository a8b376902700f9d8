"""The interconnect and the cost of one collective operation over it: latencies, and time on the busiest link."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import ALLREDUCE, Link, Real, all_gather, reduce_scatter, star

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

    link: Link
    """Of a worker, or of a host whose workers share one card."""
    algorithm: str = "ring"
    """Of all-reduces between hosts: a key of ``ALLREDUCE``."""
    workers_per_host: Real = 1.0
    switches: tuple[Switch, ...] = ()
    """By ascending size."""


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


def communication_cost(operation: str, sizes: Real, workers: Real, interconnect: Interconnect) -> CommunicationCost:
    """Return the cost of messages of one operation.

    Args:
        operation: ``allreduce``, ``reduce_scatter``, ``all_gather`` or ``star``.
        sizes: bytes of one worker, (messages,) or (configurations, messages).
        workers: how many, a number or (configurations,).
        interconnect: its numbers, or (configurations,).

    Every formula is linear in latency and in bytes per second, so that its two parts are the formula without bytes
    and the formula without latency.

    >>> from steptime.model.collectives import Link
    >>> communication_cost("allreduce", 1e9, 4, Interconnect(Link(1e9, 0.001))).total
    array([1.506])
    """
    found = _cost_of_algorithm(operation, sizes, workers, interconnect)
    for switch in interconnect.switches:
        beyond = replace(interconnect, link=switch.link, algorithm=switch.algorithm)
        there, other = np.asarray(sizes) >= switch.size, _cost_of_algorithm(operation, sizes, workers, beyond)
        found = CommunicationCost(
            np.where(there, other.start, found.start), np.where(there, other.transfer, found.transfer)
        )
    return found


def _cost_of_algorithm(operation: str, sizes: Real, workers: Real, interconnect: Interconnect) -> CommunicationCost:
    formula = _OPERATIONS[operation](interconnect.algorithm)
    count, width = _column(workers), np.atleast_1d(np.asarray(sizes, float))
    per_host = np.minimum(_column(interconnect.workers_per_host), count)
    hosts = np.ceil(count / per_host)
    # A ring over all workers of a host crosses its card once: the card carries the traffic of one worker.
    peers = np.where(per_host > 1, hosts, count)
    rate, start = _column(interconnect.link.rate), _column(interconnect.link.start)
    rendezvous = _column(interconnect.link.rendezvous)
    starts = np.asarray(formula(np.zeros_like(width), peers, Link(np.inf, start)), float)
    transfers = np.asarray(formula(width, peers, Link(rate, rendezvous=rendezvous)), float)
    shape = np.broadcast_shapes(starts.shape, transfers.shape)
    return CommunicationCost(np.broadcast_to(starts, shape), np.broadcast_to(transfers, shape))


def _column(value: Real) -> Array:
    return np.asarray(value, float)[..., None]


_OPERATIONS: Mapping[str, Callable[[str], Callable[[Real, Real, Link], Real]]] = {
    "allreduce": lambda algorithm: ALLREDUCE[algorithm],
    "reduce_scatter": lambda _: reduce_scatter,
    "all_gather": lambda _: all_gather,
    "star": lambda _: star,
}
