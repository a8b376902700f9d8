"""Which pieces of gradients travel in a step, when each is there, and how long it takes on a link."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np

from steptime.perfmodels.communication.all_gather import all_gather
from steptime.perfmodels.communication.link import Link, Real
from steptime.perfmodels.communication.ring import ring
from steptime.perfmodels.parameter_server import synchronous_exchange
from steptime.profiles.drawing import Array
from steptime.profiles.observation import Setting
from steptime.workloads.costs import Costs, costs
from steptime.workloads.table import build_workload

_MIB = 2**20
_FIRST_BUCKET = 1.0 * _MIB
BUCKET_MB = 25.0
_BUCKETED = {("pytorch", "allreduce")}
_SERVERS = frozenset({"ps_sync", "ps_async"})
_ONE_BIT = 32


@dataclass(frozen=True)
class Pieces:
    """Of one step, in the order in which they are sent."""

    sizes: Array
    """Bytes."""
    ready: Array
    """Share of the backward pass after which a piece can be sent."""


@cache
def costs_of(workload: str, input_shape: tuple[int, ...], classes: int) -> Costs:
    """Return the costs of a workload of the library."""
    return costs(build_workload(workload, input_shape, classes))


def pieces(framework: str, strategy: str, cost: Costs, bucket_mb: float | None) -> Pieces:
    """Return what a framework sends for one step.

    PyTorch's DDP closes a bucket with the tensor that fills it, in the reverse order of the forward pass: the first
    at 1 MiB, the others at ``bucket_mb`` (Li et al., VLDB 13 (2020) 3005, and its source). Anything else is taken as
    one piece per layer here; how much of it hides is a parameter that is fitted.
    """
    total = sum(layer.backward_flops for layer in cost.layers)
    done, passed = [], 0
    for layer in reversed(cost.layers):
        passed += layer.backward_flops
        if layer.gradient_bytes:
            done.append((float(layer.gradient_bytes), passed / total if total else 1.0))
    if not done:
        return Pieces(np.zeros(1), np.ones(1))
    if (framework, strategy) in _BUCKETED:
        done = _buckets(done, (bucket_mb or BUCKET_MB) * _MIB)
    sizes, ready = np.array(done).T
    return Pieces(sizes, ready)


def _buckets(tensors: list[tuple[float, float]], limit: float) -> list[tuple[float, float]]:
    found, size, closing = [], 0.0, min(_FIRST_BUCKET, limit)
    for count, ready in tensors:
        size += count
        if size >= closing:
            found.append((size, ready))
            size, closing = 0.0, limit
    if size:
        found.append((size, tensors[-1][1]))
    return found


def has_servers(strategy: str) -> bool:
    """Say whether workers exchange through servers."""
    return strategy in _SERVERS


def exchange_seconds(strategy: str, sizes: Array, setting: Setting, link: Link) -> Array:
    """Return how long each piece takes between the workers of ``setting``.

    Args:
        strategy: a key of ``EXCHANGES``.
        sizes: bytes; the last axis is that of the pieces.
        setting: numbers of workers and servers.
        link: its start is that of one step of the algorithm; numbers, or arrays that broadcast against sizes.
    """
    lasting: Array = np.asarray(EXCHANGES[strategy](sizes, setting, link), dtype=np.float64)
    return lasting


def _ring(sizes: Array, setting: Setting, link: Link) -> Real:
    return ring(sizes, setting.workers, link)


def _gathered(sizes: Array, setting: Setting, link: Link) -> Real:
    """Weights are gathered once more than gradients are reduced and gathered."""
    return ring(sizes, setting.workers, link) + all_gather(sizes, setting.workers, link)


def _one_bit(sizes: Array, setting: Setting, link: Link) -> Real:
    return ring(sizes / _ONE_BIT, setting.workers, link)


def _pushed(sizes: Array, setting: Setting, link: Link) -> Real:
    """Beside a worker, a server's traffic shares the worker's link, less what stays on the host."""
    servers = max(setting.servers, 1)
    beside = setting.placement == "colocated"
    seconds = synchronous_exchange(sizes, setting.workers, servers, link)
    if not beside:
        return seconds
    own = (setting.workers - 1) / setting.workers
    crowded = 2 * own * ceil(setting.workers / servers) / max(1.0, setting.workers / servers)
    return seconds * max(crowded, 1.0)


EXCHANGES: Mapping[str, Callable[[Array, Setting, Link], Real]] = {
    "allreduce": _ring,
    "zero1": _ring,
    "zero2": _ring,
    "zero3": _gathered,
    "fsdp": _gathered,
    "onebit": _one_bit,
    "ps_sync": _pushed,
    "ps_async": _pushed,
}
"""The strategies whose exchange has a formula."""
