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
from steptime.profiles.observation import Key, Setting
from steptime.stepgraph.graph import StepGraph, step_graph
from steptime.stepgraph.plan import Circumstances
from steptime.stepgraph.work import work_of
from steptime.workloads.costs import Costs, costs
from steptime.workloads.table import build_workload

_PLAYED = frozenset({"allreduce"})
"""Strategies whose graph the simulator plays; the others' exchange has a formula of its own."""
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


def pieces(cost: Costs) -> Pieces:
    """Return one piece for each layer with weights, in the order in which the backward pass is done with them.

    For strategies without a step graph; how much of it hides is a parameter that is fitted.
    """
    total = sum(layer.backward_flops for layer in cost.layers)
    done, passed = [], 0
    for layer in reversed(cost.layers):
        passed += layer.backward_flops
        if layer.gradient_bytes:
            done.append((float(layer.gradient_bytes), passed / total if total else 1.0))
    if not done:
        return Pieces(np.zeros(1), np.ones(1))
    sizes, ready = np.array(done).T
    return Pieces(sizes, ready)


@cache
def graph_of(key: Key, setting: Setting) -> StepGraph | None:
    """Return what precedes what in a step; None for a strategy that is not played as a graph."""
    if key.strategy not in _PLAYED:
        return None
    options = dict(key.options)
    if setting.bucket_mb is not None:
        options["bucket_mb"] = setting.bucket_mb
    return step_graph(
        work_of(build_workload(key.workload, key.input_shape, key.classes)),
        key.framework,
        key.strategy,
        Circumstances(
            workers=setting.workers,
            servers=setting.servers,
            options=options,
            device="cuda" if key.device == "cuda" else "cpu",
            batch=setting.batch,
        ),
    )


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
