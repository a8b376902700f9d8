"""What is played: a graph, one worker's durations, who takes part, and what joins them, for all configurations."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Real
from steptime.model.compute import Shares, layer_shares
from steptime.model.interconnect import Interconnect
from steptime.model.step_graph import StepGraph
from steptime.simulate.stragglers import EVEN, Spread

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
    spread: Spread = EVEN
    slowest: Real | None = None
    """Time of the slowest over the mean; None for what is expected of the spread."""
    slowdown: Real = 0.0
    """How much longer computing takes while an exchange is under way, as a share."""
    negotiation: Real | None = None
    """Seconds until all workers of a fused exchange know what all have; None for an all-reduce without bytes."""
    colocated: bool = False
    """Whether servers share hosts and links with workers."""
    update_rate: Real | None = None
    """Bytes of gradients that a server applies per second; None for what the workers' own update takes."""


@dataclass(frozen=True)
class Scene:
    """Everything as arrays of one length, (configurations,)."""

    graph: StepGraph
    crew: Crew
    interconnect: Interconnect
    shares: Shares
    ready: Array
    """Share of the backward pass after which each message can go, (configurations or 1, messages)."""
    forward: Array
    backward: Array
    """Both of the slowest worker."""
    update: Array
    workers: Array

    @property
    def carrier(self) -> Interconnect:
        """The interconnect, with the framework's own algorithm where it has one."""
        own = self.graph.plan.algorithm
        return self.interconnect if own is None else replace(self.interconnect, algorithm=own)

    @property
    def computing(self) -> Array:
        """Seconds of both passes of the slowest worker."""
        return self.forward + self.backward

    @property
    def moments(self) -> Array:
        """When each message can go, (configurations, messages)."""
        return self.forward[:, None] + self.backward[:, None] * self.ready

    @property
    def sizes(self) -> Array:
        """Bytes of each message, (messages,)."""
        return np.array([message.bytes for message in self.graph.messages], float)


def shares_of(graph: StepGraph) -> Shares:
    """Return the layers' shares of the passes by their arithmetic and traffic."""
    layers = graph.work.layers
    return layer_shares(
        [layer.forward_flops for layer in layers],
        [layer.backward_flops for layer in layers],
        [layer.traffic for layer in layers],
    )


def readiness(graph: StepGraph, shares: Shares) -> Array:
    """Return the share of the backward pass after which each message can go, (1, messages)."""
    return shares.passed[[message.after for message in graph.messages]][None, :]
