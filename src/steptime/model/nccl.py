"""NCCL: the seconds of its collectives by algorithm and protocol, and the rule by which it chooses among them.

NCCL predicts each pair of an algorithm (ring, tree, reduction inside the switch) and a protocol (LL, LL128, Simple)
from a start and a rate, and takes the quickest. Its constants are those of ``src/graph/tuning.cc`` and
``src/graph/topo.h`` of https://github.com/NVIDIA/nccl (read at commit 5067397c). What each link carries is counted
here, since NCCL folds it into one rate: P ranks on N hosts of g, n bytes.

- ring: each rank's link inside the host carries ``2(P-1)/P n``, and all cards of a host together as much; ``2(P-N)``
  steps inside and ``2(N-1)`` between hosts.
- tree (two trees, each with half of the message; a chain inside the host): a rank in the middle carries ``2n``, the
  ends of a chain or a tree of two ``n``; ``2(g-1)`` steps inside and ``2 log2 N`` between hosts.
- switch (NVLink SHARP, one host or a tree of hosts): a rank carries ``(1 + 1/P) n``, 9/8 n at 8 ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Link, Real

Array = NDArray[np.float64]
Medium = Literal["nvlink", "pcie", "network"]
_MICRO, _GIGA = 1e-6, 1e9


@dataclass(frozen=True)
class _Protocol:
    """A way to move bytes: LL sends a flag with every 4 bytes, LL128 with every 120, Simple synchronises by chunk."""

    name: str
    ring_share: float
    """Of a link's rate that a ring reaches."""
    tree_share: float
    tree_share_of_hosts: float
    """The same where the tree spans hosts."""
    base: Mapping[str, float]
    """Seconds of a launch, by algorithm."""
    ring_step: Mapping[Medium, float]
    """Seconds of one step of a ring, by medium."""
    tree_step: Mapping[Medium, float]


def _micro(nvlink: float, pcie: float, network: float) -> dict[Medium, float]:
    return {"nvlink": nvlink * _MICRO, "pcie": pcie * _MICRO, "network": network * _MICRO}


_TREE = 0.92
_LL, _LL128, _SIMPLE = (
    _Protocol(
        "LL",
        0.5,
        _TREE / 3.8,
        _TREE / 3.8,
        {"tree": 6.8e-6, "ring": 6.6e-6},
        _micro(0.6, 1.0, 2.7),
        _micro(0.6, 1.0, 5.0),
    ),
    _Protocol(
        "LL128",
        0.92,
        _TREE * 7 / 9,
        _TREE * 120 / 128,
        {"tree": 14e-6, "ring": 14e-6},
        _micro(1.9, 2.5, 4.0),
        _micro(1.25, 1.9, 8.5),
    ),
    _Protocol(
        "Simple",
        1.0,
        _TREE,
        _TREE,
        {"tree": 8.4e-6, "ring": 8.4e-6},
        _micro(3.4, 5.7, 14.0),
        _micro(4.0, 4.0, 14.0),
    ),
)
LAUNCH = 10e-6
"""Seconds of a kernel's launch and of what NCCL's constants leave out: about the median, over nine published tables of
nccl-tests (``benchmarks/nccl``), by which short all-reduces take longer than NCCL expects."""
_SWITCH_START, _SWITCH_STEP = 25e-6, 18e-6
_SWITCH_VOLUME = 9 / 8
_HALF_A_HOST = 4
"""Steps inside a host of eight that a tree saves with half of its ranks elsewhere: a step between hosts takes as long
at least, so that nothing gets quicker by leaving a host (NCCL's 14 microseconds for Simple are 2 too few for that)."""
_GENERATIONS = (180 * _GIGA, 300 * _GIGA, 600 * _GIGA)
"""Rates of NVLink from which a rank is of Ampere's, Hopper's and Blackwell's generation."""
_MOST_LL = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
"""GB/s that LL reaches at most, by generation and for 1, 2 and more hosts."""

STEP: Mapping[Medium, float] = _LL.ring_step
"""Seconds of one step of a ring under LL, by medium: the latency that a ``Link`` of that medium has in NCCL's view."""
OTHER_STEP: Mapping[Medium, float] = {
    medium: float(np.sqrt(_LL.ring_step[medium] * _SIMPLE.ring_step[medium])) for medium in STEP
}
"""Seconds of one step of another library's ring over a link of that medium, unless measured: in the middle, by
ratio, of LL, which is quick and sends a flag with every 4 bytes, and of Simple, which reaches a link's whole rate."""


@dataclass(frozen=True)
class NcclLinks:
    """What joins ranks; numbers, or arrays that broadcast to (configurations, messages)."""

    inner: Link
    """Of one rank to the others of its host."""
    outer: Link
    """Of all cards of a host together."""
    ranks: Real
    hosts: Real


def nccl_cost(operation: str, sizes: Array, links: NcclLinks) -> tuple[Array, Array]:
    """Return the seconds before bytes and the seconds on the busiest link, of the quickest algorithm and protocol.

    Args:
        operation: ``allreduce``, ``reduce_scatter`` or ``all_gather``.
        sizes: bytes, (..., messages).
        links: between the ranks.
    """
    candidates = _candidates(operation, links)
    starts = [np.broadcast_to(start, np.broadcast_shapes(np.shape(start), sizes.shape)) for start, _ in candidates]
    transfers = [np.asarray(sizes * per_byte, float) for _, per_byte in candidates]
    shape = np.broadcast_shapes(*(each.shape for each in (*starts, *transfers)))
    start, transfer = (np.stack([np.broadcast_to(each, shape) for each in part]) for part in (starts, transfers))
    best = np.argmin(start + transfer, axis=0)[None]
    alone = np.asarray(links.ranks) <= 1
    found = (np.take_along_axis(part, best, axis=0)[0] for part in (start, transfer))
    first, second = (np.where(alone, 0.0, each) for each in found)
    return first, second


def _candidates(operation: str, links: NcclLinks) -> Sequence[tuple[Array, Array]]:
    """Return the start and the seconds per byte of each algorithm and protocol."""
    protocols = [_LL, _SIMPLE] if links.inner.medium == "pcie" else [_LL, _LL128, _SIMPLE]
    if operation != "allreduce":
        return [_ring(protocol, links, 1.0) for protocol in protocols]
    found = [_ring(protocol, links, 2.0) for protocol in protocols]
    found += [_tree(protocol, links) for protocol in protocols]
    return [*found, _switch(links)] if np.any(np.asarray(links.inner.switch_share) > 0) else found


def _scale(link: Link) -> Array:
    """Return how much longer a step of a link takes than NCCL believes of its medium."""
    return np.asarray(link.start, float) / STEP[link.medium]


def _ring(protocol: _Protocol, links: NcclLinks, passes: float) -> tuple[Array, Array]:
    ranks, hosts = np.asarray(links.ranks, float), np.asarray(links.hosts, float)
    inside = protocol.ring_step[links.inner.medium] * _scale(links.inner)
    # Nothing hides the latency between hosts of one rank, so that NCCL counts a tree's.
    steps = np.where(ranks > hosts, protocol.ring_step[links.outer.medium], protocol.tree_step[links.outer.medium])
    between = np.maximum(steps * _scale(links.outer), inside)
    start = LAUNCH + protocol.base["ring"] + passes * ((ranks - hosts) * inside + (hosts - 1) * between)
    rate = protocol.ring_share * _slowest(links, 1.0, np.where(hosts > 1, 1.0, 0.0))
    if protocol is _LL:
        rate = np.minimum(rate, _most_of_ll(links))
    return start, passes * (ranks - 1) / ranks / rate


def _tree(protocol: _Protocol, links: NcclLinks) -> tuple[Array, Array]:
    ranks, hosts = np.asarray(links.ranks, float), np.asarray(links.hosts, float)
    each = ranks / hosts
    inside = protocol.tree_step[links.inner.medium] * _scale(links.inner)
    between = np.maximum(protocol.tree_step[links.outer.medium] * _scale(links.outer), _HALF_A_HOST * inside)
    start = LAUNCH + protocol.base["tree"] + 2 * ((each - 1) * inside + np.ceil(np.log2(hosts)) * between)
    # Two ranks of a tree carry the message once in each direction, those in the middle of a longer one twice.
    inner, outer = (np.where(count > 2, 2.0, np.where(count > 1, 1.0, 0.0)) for count in (ranks, hosts))  # noqa: PLR2004
    share = np.where(hosts > 1, min(protocol.tree_share, protocol.tree_share_of_hosts), protocol.tree_share)
    rate = share * _slowest(links, inner, outer)
    if protocol is _LL:
        rate = np.minimum(rate, _most_of_ll(links) / 2.0)
    return start, 1.0 / rate


def _switch(links: NcclLinks) -> tuple[Array, Array]:
    ranks, hosts = np.asarray(links.ranks, float), np.asarray(links.hosts, float)
    between = _SWITCH_STEP * _scale(links.outer)
    start = LAUNCH + _SWITCH_START * _scale(links.inner) + 2 * np.ceil(np.log2(hosts)) * between
    volume = np.minimum(2 * (ranks - 1) / np.maximum(ranks, 1), _SWITCH_VOLUME)
    outer = np.where(hosts > 2, 2.0, np.where(hosts > 1, 1.0, 0.0))  # noqa: PLR2004 - a tree of two has no middle
    share = np.maximum(np.asarray(links.inner.switch_share, float), 1e-12)
    return start, np.maximum(volume / (share * links.inner.rate), outer / links.outer.rate)


def _slowest(links: NcclLinks, inner: Real, outer: Real) -> Array:
    """Return bytes of the message per second, where links carry ``inner`` and ``outer`` times the message at once."""
    with np.errstate(divide="ignore"):
        seconds = np.maximum(inner / np.asarray(links.inner.rate, float), outer / np.asarray(links.outer.rate, float))
        return np.asarray(1.0 / np.maximum(seconds, np.finfo(float).tiny), float)


def _most_of_ll(links: NcclLinks) -> Array:
    generation = np.searchsorted(_GENERATIONS, np.asarray(links.inner.rate, float), side="right")
    place = np.minimum(np.asarray(links.hosts, float), 3.0).astype(int) - 1
    return np.asarray(_GIGA * np.asarray(_MOST_LL)[generation, place], float)
