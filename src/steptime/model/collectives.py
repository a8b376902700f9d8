"""Collective operations: what one costs between p workers, in seconds over one kind of link.

The formulas assume that messages follow each other without gaps, that links are full duplex and idle otherwise, and
that adding is free. Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
operations in MPICH", IJHPCA 19 (2005) 49; P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", J. Parallel Distrib. Comput. 69 (2009) 117.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]
"""A number, or an array of numbers: formulas are written once for both."""


@dataclass(frozen=True)
class Link:
    """One direction of a link between two workers or hosts."""

    rate: Real
    """Bytes per second that a long message reaches."""
    latency: Real = 0.0
    """Seconds per step of an algorithm, as measured with the back end that is modelled."""
    latencies_per_step: Real = 1.0
    """How many latencies that back end spends in one step: one by the textbook, two for gloo's ring."""

    least: Real = 0.0
    """Seconds that a step takes at least, with its bytes."""
    rendezvous: Real = np.inf
    """Bytes from which a message waits until its receiver says that it is ready, over the connection that carries the
    messages of both; infinite where they have one each, or without waiting."""
    ramp_s: Real = 0.0
    """Seconds that a further connection needs until it has its share of the link; 0 where all share it at once."""
    sends_ahead: bool = False
    """Whether workers without others to wait for were seen to send while their partner still receives."""
    medium: Literal["nvlink", "pcie", "network"] = "network"
    """What the link is made of, as far as NCCL's protocols differ on it."""
    switch_share: Real = 0.0
    """Share of the rate at which the switch itself reduces (NVLink SHARP); 0 for a switch that does not."""
    efficiency: tuple[tuple[float, float], ...] = ()
    """Bytes of messages, ascending, and the modelled seconds of each over the measured ones; in between by the
    logarithm of the size, and beyond as at the ends. None measured: 1."""

    def efficiency_at(self, sizes: Real) -> NDArray[np.float64]:
        """Return the modelled over the measured seconds of messages of these sizes."""
        width = np.maximum(np.asarray(sizes, float), 1.0)
        if not self.efficiency:
            return np.ones(width.shape)
        known = np.log(np.asarray(self.efficiency, float))
        return np.asarray(np.exp(np.interp(np.log(width), known[:, 0], known[:, 1])), float)

    @property
    def start(self) -> Real:
        """Seconds that one step costs before its bytes."""
        return self.latency * self.latencies_per_step


def ring(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of an all-reduce: ``2(p-1) a + 2(p-1)/p n/B``.

    Args:
        size: bytes that every worker contributes.
        workers: p; one worker does not communicate.
        link: between neighbours, used in both directions at once.

    >>> ring(1e9, 4, Link(rate=1e9))
    1.5
    """
    return 2 * (workers - 1) * link.start + 2 * (workers - 1) / workers * size / link.rate


SOCKET_BUFFER_BYTES = 4.0 * 2**20
"""That Linux takes of what a program sends before the program waits: the largest of ``net.ipv4.tcp_wmem``."""


def star(size: Real, workers: Real, link: Link) -> Real:
    """Return by how much a star makes a step longer: ``2 a + (f + (p-1) n)/B``.

    Everything passes the link of the one in the middle, in and out. The first answer is there behind ``f`` bytes: its
    own, and what the others send beside it. Answers that fit into the buffers of sockets share the link and come
    together, ``f = (p-1) n``; of longer ones the middle sends the next while the last buffer of one is on its way, and
    whoever was answered sends again while others are answered. From then on the ``p-1`` next messages fill the link.

    >>> float(star(1e6, 4, Link(rate=1e6)))
    6.0
    """
    several = np.asarray(workers) > 1
    bytes_ = answered(size, workers) + (workers - 1) * np.asarray(size, float)
    seconds: Real = np.where(several, 2.0, 0.0) * link.start + np.where(several, bytes_, 0.0) / link.rate
    return seconds


def answered(size: Real, workers: Real) -> Real:
    """Return the bytes that pass the middle's link until the first worker of a star has its answer."""
    width = np.asarray(size, float)
    found: Real = width + np.minimum(np.maximum(np.asarray(workers) - 2.0, 0.0) * width, SOCKET_BUFFER_BYTES)
    return found


SOCKET_RENDEZVOUS_BYTES = 3_715_832.0
"""From which MPICH's messages over sockets between hosts wait for their receivers: as UCX 1.18 reports."""
_IN_STEP = 2
"""Workers that leave every all-reduce together, so that both say that they are ready before either sends."""


def halving_doubling(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``2 log2(p) a + 2(p-1)/p n/B`` where p is a power of two, 2^r.

    Else the surplus over 2^r hands its message to partners before and gets the result after: two more rounds with the
    whole message. Where workers that have no surplus to wait for send ahead (``link.sends_ahead``), what they send
    shares a partner's link with the message that is handed to it: ``1/2^t - 1/2^r`` of a message more, where 2^t is
    the largest power of two that divides p.

    Two partners whose parts are at least ``link.rendezvous`` long send half of them at the same time and half one
    after the other, since saying that one is ready waits behind what one sends: such a part takes half as long again.
    Who waits so does not send ahead, and the longer of the two counts.

    Both were measured with MPICH (docs/models/README.md); tests hold the first to a simulation of every message.

    >>> float(halving_doubling(1e9, 4, Link(rate=1e9)))
    1.5
    >>> float(halving_doubling(1e9, 3, Link(rate=1e9)))
    3.0
    >>> float(halving_doubling(1e9, 3, Link(rate=1e9, sends_ahead=True)))
    3.5
    >>> float(halving_doubling(1e9, 4, Link(rate=1e9, rendezvous=5e8)))
    2.0
    """
    count = np.asarray(workers).astype(np.int64)
    rounds = np.floor(np.log2(count))
    core, divisor = 2**rounds, count & -count
    surplus = np.where(core < count, 2.0, 0.0)
    ahead = (1 / divisor - 1 / core) * link.sends_ahead
    messages = 2 * (core - 1) / core + surplus + np.maximum(ahead, _one_way(size, count, rounds, link))
    seconds: Real = (2 * rounds + surplus) * link.start + messages * size / link.rate
    return seconds


def _one_way(size: Real, count: NDArray[np.int64], rounds: Real, link: Link) -> Real:
    """Return by how many messages it takes longer that partners wait for each other: half of each part, there and back.

    The parts are 1/2, 1/4, … of a message.
    """
    parts = np.floor(np.log2(np.maximum(np.asarray(size, float) / link.rendezvous, 1.0)))
    waited: Real = np.where(count > _IN_STEP, 1.0 - 0.5 ** np.minimum(parts, rounds), 0.0)
    return waited


def all_gather(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``(p-1) a + (p-1)/p n/B``, with ``size`` the bytes that every worker ends up with.

    >>> all_gather(1e9, 4, Link(rate=1e9))
    0.75
    """
    return (workers - 1) * link.start + (workers - 1) / workers * size / link.rate


def reduce_scatter(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``(p-1) a + (p-1)/p n/B``, with ``size`` the bytes before the reduction.

    >>> reduce_scatter(1e9, 4, Link(rate=1e9))
    0.75
    """
    return (workers - 1) * link.start + (workers - 1) / workers * size / link.rate


def recursive_doubling(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``ceil(log2 p) (a + n/B)``, and of two more whole messages where p is not a power of two.

    >>> float(recursive_doubling(1e9, 4, Link(rate=1e9)))
    2.0
    """
    count = np.asarray(workers, float)
    rounds = np.floor(np.log2(count))
    messages = rounds + np.where(2**rounds < count, 2.0, 0.0)
    seconds: Real = messages * (link.start + size / link.rate)
    return seconds


ALLREDUCE: Mapping[str, Callable[[Real, Real, Link], Real]] = {
    "ring": ring,
    "halving_doubling": halving_doubling,
    "recursive_doubling": recursive_doubling,
}
"""The all-reduce algorithms that frameworks use, by name; each takes bytes per worker, workers and a link."""

_MPICH_SHORT = 2048.0
"""Bytes up to which MPICH doubles recursively (``MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE``; Thakur et al., section 4.5)."""
_OPEN_MPI_SHORT = 10_000.0
"""Bytes from which Open MPI's fixed rule of ``coll_tuned`` goes round a ring, in segments where it is long."""


def library_algorithm(library: str, sizes: Real) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return the algorithms that a library of messages uses, each with the sizes for which it does.

    Args:
        library: ``mpich``, ``open_mpi``, ``gloo``, or an algorithm of ``ALLREDUCE`` by itself.
        sizes: bytes.
    """
    size = np.asarray(sizes, float)
    if library == "mpich":
        return [("recursive_doubling", size <= _MPICH_SHORT), ("halving_doubling", size > _MPICH_SHORT)]
    if library == "open_mpi":
        return [("recursive_doubling", size < _OPEN_MPI_SHORT), ("ring", size >= _OPEN_MPI_SHORT)]
    return [("ring" if library == "gloo" else library, np.ones(size.shape, bool))]


LIBRARIES = ("nccl", "gloo", "mpich", "open_mpi")
"""Libraries of messages whose choice of algorithms is known."""


@dataclass(frozen=True)
class Operation:
    """Functions of the numbers of workers and servers."""

    steps: Callable[[int, int], float]
    """Messages that wait for each other: each costs a latency at least."""
    volume: Callable[[int, int], float]
    """Bytes through the busiest link in one direction, per byte of one worker's message."""


_RING = Operation(lambda p, _: 2.0 * (p - 1), lambda p, _: 2.0 * (p - 1) / p)
ALL_REDUCES = ("allreduce", "allreduce_queued")
OPERATIONS: Mapping[str, Operation] = {
    # Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117: a ring sends the least bytes possible. What needs
    # fewer steps, such as recursive doubling, shows as fewer than one latency per step of the ring.
    "allreduce": _RING,
    "allreduce_queued": _RING,
    # Push, then pull; the busiest link is a server's, which gets a share of all workers' pushes, or a worker's.
    # Where servers share hosts with workers their traffic adds up, which this leaves out.
    "push_pull": Operation(lambda _p, _s: 2.0, lambda p, s: 2.0 * max(1.0, p / max(s, 1))),
    # All to one, and its answer.
    "incast": Operation(lambda _p, _s: 2.0, lambda p, _: float(p - 1)),
}
