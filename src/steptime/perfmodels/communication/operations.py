"""What an operation of a back end costs by the textbook, in steps and in bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """Functions of the numbers of workers and servers."""

    steps: Callable[[int, int], float]
    """Messages that wait for each other: each costs a latency at least."""
    volume: Callable[[int, int], float]
    """Bytes through the busiest link in one direction, per byte of one worker's message."""


OPERATIONS: Mapping[str, Operation] = {
    # Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117: a ring sends the least bytes possible. What needs
    # fewer steps, such as recursive doubling, shows as fewer than one latency per step of the ring.
    "allreduce": Operation(lambda p, _: 2.0 * (p - 1), lambda p, _: 2.0 * (p - 1) / p),
    # Push, then pull; the busiest link is a server's, which gets a share of all workers' pushes, or a worker's.
    # Where servers share hosts with workers their traffic adds up, which this leaves out.
    "push_pull": Operation(lambda _p, _s: 2.0, lambda p, s: 2.0 * max(1.0, p / max(s, 1))),
    # All to one, and its answer.
    "incast": Operation(lambda _p, _s: 2.0, lambda p, _: float(p - 1)),
}
