"""One step played: from the step graph, durations and an interconnect to the seconds of every phase."""

import numpy as np
from numpy.typing import NDArray

from steptime.model.compute import Shares
from steptime.model.interconnect import Interconnect
from steptime.model.step_graph import StepGraph
from steptime.simulate.configuration import Crew, Durations, Scene, readiness, shares_of
from steptime.simulate.overlap import alone, exchange
from steptime.simulate.phases import Phases

__all__ = ["Crew", "Durations", "play"]

Array = NDArray[np.float64]


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
    forward, backward, update, reading, copying, workers = _rows(durations, crew, interconnect)
    waits = graph.plan.synchronous
    slowest = crew.spread.expected(workers) if crew.slowest is None else np.asarray(crew.slowest, float)
    slowest = np.broadcast_to(slowest if waits else 1.0, workers.shape)
    parts = shares or shares_of(graph)
    scene = Scene(
        graph=graph,
        crew=crew,
        interconnect=interconnect,
        shares=parts,
        ready=readiness(graph, parts) if ready is None else np.atleast_2d(ready),
        forward=slowest * forward,
        backward=slowest * backward,
        update=update,
        workers=workers,
    )
    outcome = exchange(scene)
    exposed = outcome.exposed + np.add(*alone(scene, graph.plan.after_update)).sum(axis=1)
    own = update if graph.plan.updated_by == "workers" else np.zeros_like(update)
    sync = (slowest - 1.0) * (forward + backward)
    rest = copying + forward + backward + outcome.stretched + exposed + sync + own
    return Phases(
        input_wait=np.maximum(0.0, reading - rest),
        h2d=copying,
        forward=forward,
        backward=backward + outcome.stretched,
        comm_exposed=exposed,
        sync_wait=sync,
        update=own,
        comm_hidden=outcome.hidden,
    )


def _rows(durations: Durations, crew: Crew, interconnect: Interconnect) -> tuple[Array, ...]:
    """Return durations and workers as arrays as long as the longest of all that is given."""
    given = (
        durations.forward,
        durations.backward,
        durations.update,
        durations.input,
        durations.h2d,
        crew.workers,
    )
    others = (
        crew.slowdown,
        crew.spread.persistent,
        crew.spread.transient,
        1.0 if crew.slowest is None else crew.slowest,
        interconnect.link.rate,
        interconnect.link.start,
        interconnect.workers_per_host,
    )
    shape = np.broadcast_shapes((1,), *(np.shape(each) for each in (*given, *others)))
    return tuple(np.broadcast_to(np.asarray(each, float), shape) for each in given)
