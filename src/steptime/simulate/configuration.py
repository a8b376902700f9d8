"""The input of a simulation: a step graph, one worker's durations, the workers and the interconnect.

Every number may be an array with one value per configuration, so that many configurations are simulated at once.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Real
from steptime.model.compute import Shares, layer_shares
from steptime.model.interconnect import Interconnect
from steptime.model.policies import StepGraph
from steptime.model.worker_spread import BALANCED, WorkerSpread

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Durations:
    """Seconds of one worker's step without other workers: numbers, or (configurations,)."""

    forward: Real
    backward: Real
    update: Real = 0.0
    input: Real = 0.0
    """Seconds until the next batch is ready; the loader works while the step runs."""
    h2d: Real = 0.0


@dataclass(frozen=True)
class WorkerGroup:
    """The workers of one training job and how they differ: numbers, or (configurations,)."""

    workers: Real
    spread: WorkerSpread = BALANCED
    slowest: Real | None = None
    """Computing time of the slowest worker over the mean; None for the value expected from the spread."""
    colocated: bool = False
    """Whether servers share hosts and links with workers."""
    wake_up_s: Real = 0.0
    """Seconds that a communicating thread waits for a core that computing holds; 0 where it has a core of its own."""
    processors: Real = np.inf
    """That all workers share, each of which computes ``ceil(workers/processors)`` times as long as by itself."""


@dataclass(frozen=True)
class Configurations:
    """Configurations to simulate, as arrays of one length, (configurations,)."""

    graph: StepGraph
    group: WorkerGroup
    interconnect: Interconnect
    shares: Shares
    ready: Array
    """Share of the backward pass after which each message can go, (configurations or 1, messages)."""
    forward: Array
    """Forward pass of the slowest worker."""
    backward: Array
    """Backward pass of the slowest worker."""
    update: Array
    workers: Array

    @property
    def collective_interconnect(self) -> Interconnect:
        """The interconnect with the all-reduce algorithm of the framework, where the framework brings one."""
        own = self.graph.plan.algorithm
        return self.interconnect if own is None else replace(self.interconnect, algorithm=own)

    @property
    def computing(self) -> Array:
        """Seconds of both passes of the slowest worker."""
        return self.forward + self.backward

    @property
    def ready_s(self) -> Array:
        """Seconds after the step's begin at which each message can go, (configurations, messages)."""
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


def readiness_by_arithmetic(graph: StepGraph, shares: Shares) -> Array:
    """Return the share of the backward pass after which each message can go, (1, messages)."""
    return shares.passed[[message.after for message in graph.messages]][None, :]
