"""The simulator: from a step graph, durations and an interconnect to the seconds of every phase of a step."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from steptime.model.compute import Shares
from steptime.model.interconnect import Interconnect
from steptime.model.policies import StepGraph
from steptime.phases import HIDDEN
from steptime.simulate.configuration import (
    Configurations,
    Durations,
    WorkerGroup,
    readiness_by_arithmetic,
    shares_of,
)
from steptime.simulate.overlap import costs_alone, simulate_exchange

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Phases:
    """Seconds, (configurations,) each; docs/breakdown.md describes them."""

    input_wait: Array
    h2d: Array
    forward: Array
    backward: Array
    comm_exposed: Array
    sync_wait: Array
    update: Array
    comm_hidden: Array

    @property
    def step(self) -> Array:
        """Sum of the phases: from one completed update to the next, on the slowest worker."""
        return np.asarray(sum(self.parts().values()), float)

    def parts(self) -> dict[str, Array]:
        """Return the phases that add up to the step."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != HIDDEN.name}


def simulate(  # noqa: PLR0913 - what is simulated, and what is known better than by default
    graph: StepGraph,
    durations: Durations,
    group: WorkerGroup,
    interconnect: Interconnect,
    *,
    shares: Shares | None = None,
    ready: Array | None = None,
) -> Phases:
    """Return the phases of a step, (configurations,) each.

    Args:
        graph: the tasks of a step and their dependences.
        durations: of computing, input and update.
        group: how many workers, and how they differ.
        interconnect: carries the exchanges.
        shares: of layers in the passes; by their arithmetic where it is None.
        ready: the measured share of the backward pass after which each message can go, (messages,) or
            (configurations, messages); None to take it from the shares.
    """
    forward, backward, update, reading, copying, workers = _rows(durations, group, interconnect)
    waits = graph.plan.synchronous
    slowest = group.spread.imbalance_factor(workers) if group.slowest is None else np.asarray(group.slowest, float)
    slowest = np.broadcast_to(slowest if waits else 1.0, workers.shape)
    parts = shares or shares_of(graph)
    configurations = Configurations(
        graph=graph,
        group=group,
        interconnect=interconnect,
        shares=parts,
        ready=readiness_by_arithmetic(graph, parts) if ready is None else np.atleast_2d(ready),
        forward=slowest * forward,
        backward=slowest * backward,
        update=update,
        workers=workers,
    )
    exchange = simulate_exchange(configurations)
    exposed = exchange.exposed + np.add(*costs_alone(configurations, graph.plan.after_update)).sum(axis=1)
    own = update if graph.plan.updated_by == "workers" else np.zeros_like(update)
    sync = (slowest - 1.0) * (forward + backward)
    rest = copying + forward + backward + exposed + sync + own
    return Phases(
        input_wait=np.maximum(0.0, reading - rest),
        h2d=copying,
        forward=forward,
        backward=backward,
        comm_exposed=exposed,
        sync_wait=sync,
        update=own,
        comm_hidden=exchange.hidden,
    )


def _rows(durations: Durations, group: WorkerGroup, interconnect: Interconnect) -> tuple[Array, ...]:
    """Return durations and workers as arrays as long as the longest of all numbers given."""
    given = (
        durations.forward,
        durations.backward,
        durations.update,
        durations.input,
        durations.h2d,
        group.workers,
    )
    others = (
        group.spread.persistent,
        group.spread.transient,
        1.0 if group.slowest is None else group.slowest,
        interconnect.outer.rate,
        interconnect.outer.start,
        interconnect.workers_per_host,
    )
    shape = np.broadcast_shapes((1,), *(np.shape(each) for each in (*given, *others)))
    return tuple(np.broadcast_to(np.asarray(each, float), shape) for each in given)
