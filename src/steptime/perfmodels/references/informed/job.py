"""What a model that knows more than workers and times is told of a training job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from steptime.perfmodels.communication.link import Link
from steptime.perfmodels.references.curve_model import Array

FORWARD_SHARE = 1 / 3
"""Of a step's computing: the backward pass computes gradients of weights and of inputs, twice the forward's work."""


@dataclass(frozen=True)
class Layer:
    """One layer with weights, in the order in which the backward pass reaches it."""

    backward_share: float
    """Of the seconds of the whole backward pass; those of layers without weights go to the next one with some."""
    gradient_bytes: float


@dataclass(frozen=True)
class Job:
    """One training job: what it sends and over what."""

    layers: tuple[Layer, ...]
    """Never empty."""
    host_size: float
    """Workers in one host; infinite where no limit is known."""
    inside: Link
    """Between two devices of a host."""
    between: Link
    """Between two hosts."""
    servers: Array | None = None
    """Parameter servers at each point asked for, not a number where unknown; None where workers reduce among them."""

    @property
    def gradient_bytes(self) -> float:
        """What one worker contributes to the exchange of one step."""
        return sum(layer.gradient_bytes for layer in self.layers)

    def link(self, workers: Array) -> Link:
        """Return the slowest link that so many workers have to use; hosts are filled one after the other."""
        far = workers > self.host_size
        rate = np.where(far, min(float(self.inside.rate), float(self.between.rate)), self.inside.rate)
        return Link(rate, np.where(far, self.between.latency, self.inside.latency))


class InformedModel(Protocol):
    """Fits a curve of step times of a job, sorted by workers, and says what it becomes for others."""

    def __call__(self, job: Job, workers: Array, seconds: Array, asked: Array) -> Array:
        """Return the seconds of a step with ``asked`` workers, given those measured."""
        ...


def even_layers(count: int, gradient_bytes: float) -> tuple[Layer, ...]:
    """Return layers that are all alike, for a job of which only the sum is known."""
    return tuple(Layer(1 / count, gradient_bytes / count) for _ in range(count))


def scaled(layers: Sequence[Layer], factor: float) -> tuple[Layer, ...]:
    """Return layers whose gradients take ``factor`` times the bytes."""
    return tuple(Layer(layer.backward_share, layer.gradient_bytes * factor) for layer in layers)
