"""One step played: from the step graph, durations and an interconnect to the seconds of every phase."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.perfmodels.communication.carriage import Carriage, Interconnect, carriage
from steptime.perfmodels.communication.link import Real
from steptime.perfmodels.layers import Shares, layer_shares
from steptime.simulator.fusing import fuse
from steptime.simulator.phases import Phases
from steptime.simulator.sharing import in_order, share
from steptime.simulator.spread import EVEN, Spread
from steptime.stepgraph.graph import StepGraph

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Durations:
    """Seconds of one worker's step without others: numbers, or (configurations,)."""

    forward: Real
    backward: Real
    update: Real = 0.0
    input: Real = 0.0
    """Until the next batch is there; beside the step."""
    h2d: Real = 0.0


@dataclass(frozen=True)
class Crew:
    """Who takes part, and how they differ: numbers, or (configurations,)."""

    workers: Real
    servers: Real = 0.0
    spread: Spread = EVEN
    slowest: Real | None = None
    """Time of the slowest over the mean; None for what is expected of the spread."""
    slowdown: Real = 0.0
    """How much longer computing takes while an exchange is under way, as a share."""
    negotiation: Real = 0.0
    """Seconds until all workers of a fused exchange know what all have."""


def play(  # noqa: PLR0913 - what is played, and what is known better than by default
    graph: StepGraph,
    durations: Durations,
    crew: Crew,
    interconnect: Interconnect,
    *,
    shares: Shares | None = None,
    ready: Array | None = None,
) -> Phases:
    """Return the phases of a step, (configurations,) each.

    Args:
        graph: what precedes what.
        durations: of computing, input and update.
        crew: how many workers, and how they differ.
        interconnect: what carries the exchanges.
        shares: of layers in the passes; by their arithmetic where it is None.
        ready: where it was measured, the share of the backward pass after which each message can go, (messages,)
            or (configurations, messages); else from the shares.
    """
    forward, backward, update, reading, copying, workers, slowdown = np.broadcast_arrays(
        *(
            np.atleast_1d(np.asarray(each, float))
            for each in (
                durations.forward,
                durations.backward,
                durations.update,
                durations.input,
                durations.h2d,
                crew.workers,
                crew.slowdown,
            )
        )
    )
    slowest = np.broadcast_to(crew.spread.expected(workers) if crew.slowest is None else crew.slowest, workers.shape)
    when = _ready(graph, shares) if ready is None else ready
    moments = slowest[:, None] * (forward[:, None] + backward[:, None] * np.atleast_2d(when))
    computing = slowest * (forward + backward)
    exposed, hidden, stretched = _exchange(graph, crew, interconnect, moments, computing, workers, slowdown)
    after = _behind(graph, workers, interconnect)
    sync = (slowest - 1.0) * (forward + backward)
    rest = copying + forward + stretched + backward + sync + exposed + after + update
    return Phases(
        input_wait=np.maximum(0.0, reading - rest),
        h2d=copying + np.zeros_like(rest),
        forward=forward + np.zeros_like(rest),
        backward=backward + stretched,
        comm_exposed=exposed + after,
        sync_wait=sync,
        update=update + np.zeros_like(rest),
        comm_hidden=hidden,
    )


def shares_of(graph: StepGraph) -> Shares:
    """Return the layers' shares of the passes by their arithmetic and traffic."""
    layers = graph.work.layers
    return layer_shares(
        [layer.forward_flops for layer in layers],
        [layer.backward_flops for layer in layers],
        [layer.traffic for layer in layers],
    )


def _ready(graph: StepGraph, shares: Shares | None) -> Array:
    passed = (shares or shares_of(graph)).passed
    return passed[[message.after for message in graph.messages]] if graph.messages else np.ones(0)


def _carriage(graph: StepGraph, workers: Array, interconnect: Interconnect) -> Carriage:
    sizes = np.array([message.bytes for message in graph.messages], float)
    (operation,) = {message.operation for message in graph.messages}
    return carriage(operation, sizes, workers, interconnect)


def _exchange(  # noqa: PLR0913, PLR0917 - what a step has
    graph: StepGraph,
    crew: Crew,
    interconnect: Interconnect,
    moments: Array,
    computing: Array,
    workers: Array,
    slowdown: Array,
) -> tuple[Array, Array, Array]:
    """Return what of the exchange is waited for, what is hidden, and by how much it stretches the backward pass."""
    nothing = np.zeros_like(computing)
    if not graph.messages:
        return nothing, nothing, nothing
    if graph.plan.fusion is not None:
        end, spent = _fused(graph, crew, interconnect, moments, workers)
        behind = np.where(workers > 1, end - computing, 0.0)
        return behind, np.where(workers > 1, np.maximum(spent - behind, 0.0), 0.0), nothing
    cost = _carriage(graph, workers, interconnect)
    if (graph.plan.in_flight == 1 or len(graph.messages) == 1) and not slowdown.any():
        total = cost.alone.sum(axis=-1)
        behind = in_order(moments, cost.alone) - computing
        return behind / graph.plan.every, (total - behind) / graph.plan.every, nothing
    shape = np.broadcast_shapes(moments.shape, cost.start.shape)
    played = share(
        np.broadcast_to(moments, shape),
        np.broadcast_to(cost.start, shape),
        np.broadcast_to(cost.transfer, shape),
        computing,
        in_flight=graph.plan.in_flight,
        slowdown=slowdown,
    )
    behind = played.ends.max(axis=1) - played.computed
    behind = np.maximum(behind, 0.0)
    return behind / graph.plan.every, (played.busy - behind) / graph.plan.every, played.computed - computing


def _fused(
    graph: StepGraph, crew: Crew, interconnect: Interconnect, moments: Array, workers: Array
) -> tuple[Array, Array]:
    fusion = graph.plan.fusion
    if fusion is None:
        message = "the plan of this graph fuses nothing"
        raise ValueError(message)
    sizes = np.array([message.bytes for message in graph.messages], float)
    unit = carriage("allreduce", 1.0, workers, interconnect)
    start, per_byte = unit.start[:, 0], unit.transfer[:, 0]
    end, spent, _ = fuse(
        moments,
        sizes,
        lambda size: start + per_byte * size,
        threshold=fusion.threshold,
        cycle=fusion.cycle_s,
        negotiation=crew.negotiation,
    )
    return end, spent


def _behind(graph: StepGraph, workers: Array, interconnect: Interconnect) -> Array:
    """Return the seconds of exchanges behind the update."""
    total = np.zeros_like(workers)
    for message in graph.plan.after_update:
        total = total + carriage(message.operation, float(message.bytes), workers, interconnect).alone[:, 0]
    return total
