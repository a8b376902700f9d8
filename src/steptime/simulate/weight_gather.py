"""Sharded training: passes whose layers wait for an all-gather of their weights, with a reduce-scatter behind each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LayerGroup:
    """Neighbouring layers that are gathered together; seconds, (configurations,) each."""

    forward: Array
    backward: Array
    gather: Array
    """Of one gathering; 0 for layers whose weights are there."""
    again: bool
    """Whether the backward pass gathers too."""
    scatter: Array
    """Of the exchange behind the group's backward pass."""


def finish_gathered(groups: Sequence[LayerGroup], prefetch: int) -> Array:
    """Return when both passes and all exchanges are over, (configurations,).

    One exchange at a time. With ``prefetch`` 0 computing waits for each of them; with k the exchange for a group is
    started when the group k before it begins, and gradients are scattered beside the next group.

    Args:
        groups: in the order of the forward pass.
        prefetch: how many groups gatherings run ahead.
    """
    nothing = np.zeros_like(np.asarray(groups[0].forward, float))
    forward = [(group.forward, group.gather, nothing) for group in groups]
    backward = [(group.backward, group.gather * group.again, group.scatter) for group in reversed(groups)]
    link, clock = _finish_pass(backward, prefetch, *_finish_pass(forward, prefetch, nothing, nothing))
    over: Array = np.maximum(link, clock)
    return over


def _finish_pass(
    steps: Sequence[tuple[Array, Array, Array]], prefetch: int, link: Array, clock: Array
) -> tuple[Array, Array]:
    """Return when link and processor are free behind one pass; steps are (computing, gathering, scattering)."""
    there: list[Array] = []
    for place, (computing, gather, scatter) in enumerate(steps):
        if len(there) == place:
            link, there = _fetch(link, clock, gather, there)
        begin = np.maximum(clock, there[place])
        for _, ahead, _ in steps[len(there) : place + prefetch + 1]:
            link, there = _fetch(link, np.maximum(clock, there[place]), ahead, there)
        clock = begin + computing
        link = np.where(scatter > 0, np.maximum(link, clock) + scatter, link)
        if prefetch == 0:
            clock = np.where(scatter > 0, link, clock)
    return link, clock


def _fetch(link: Array, asked: Array, gather: Array, there: list[Array]) -> tuple[Array, list[Array]]:
    end = np.where(gather > 0, np.maximum(link, asked) + gather, 0.0)
    return np.maximum(link, end), [*there, end]
