"""The S-SGD family: models of a synchronous step that differ in what they let run at the same time.

Sources: S. Shi, Q. Wang, X. Chu, "Performance modeling and evaluation of distributed deep learning frameworks on GPUs",
DataCom 2018, arXiv 1711.05979; S. Shi et al., "A DAG model of synchronous stochastic gradient descent in distributed
deep learning", ICPADS 2018, arXiv 1805.03812; the merging of messages as in github.com/HKBU-HPML/MG-WFBP. The papers
neglect the update; here every model adds it, because on processors it takes a tenth of a step and more.

Overlap: which part of communication and of input a step still has to wait for.

Source of both formulas for communication: S. Shi et al., arXiv 1805.03812 and 1811.11141.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.model.collectives import Real

Array = NDArray[np.float64]


def finish(ready: Array, lasting: Array) -> Array:
    """Return when the last bucket has arrived, with buckets sent one after the other in the order of the last axis.

    ``s_k = max(s_{k-1} + t_{k-1}, e_k)``, as ``C_n + max_k(e_k - C_{k-1})`` with C the sums of durations so far.

    Args:
        ready: seconds at which each bucket's gradients are there, (..., buckets).
        lasting: seconds that each bucket's exchange takes, same shape.

    >>> float(finish(np.array([1.0, 2.0]), np.array([3.0, 1.0])))
    5.0
    """
    sums = np.cumsum(lasting, axis=-1)
    latest: Array = sums[..., -1] + np.max(ready - (sums - lasting), axis=-1)
    return latest


def waited(computing: Sequence[float], starts: Sequence[bool], lasting: Sequence[float]) -> float:
    """Return the seconds that a thread waits which starts messages and waits for them, the first started first.

    Messages go one after the other.

    Args:
        computing: seconds before each call.
        starts: whether the call starts a message, or waits for the oldest one still under way.
        lasting: seconds of the message that a call starts.

    >>> waited([1.0, 0.0, 2.0, 0.0], [True, True, False, False], [3.0, 1.0, 0.0, 0.0])
    2.0
    """
    now = free = seconds = 0.0
    under_way: deque[float] = deque()
    for before, is_start, lasts in zip(computing, starts, lasting, strict=True):
        now += before
        if is_start:
            free = max(free, now) + lasts
            under_way.append(free)
        elif under_way:
            arrived = under_way.popleft()
            seconds += max(0.0, arrived - now)
            now = max(now, arrived)
    return seconds


def exposed(communication: Real, window: Real, hidden_share: Real) -> Real:
    """Return the seconds of communication that a step waits for, where only totals are known.

    A share of it may hide behind a window of computing, and what does not fit there is waited for:
    ``(1-o) T + max(0, o T - w)``.

    Args:
        communication: T, seconds of all exchanges of a step.
        window: w, seconds of computing during which gradients travel.
        hidden_share: o, the share of T that the framework starts early enough.
    """
    early = hidden_share * communication
    seconds: Real = communication - early + np.maximum(0.0, early - window)
    return seconds


def input_wait(reading: Real, waited_share: Real, *beside: Real) -> Real:
    """Return the seconds that a step waits for its batch: ``max(s R, R - T)``.

    The loader reads beside the step, so that only what takes longer than the rest of the step is waited for, and at
    least a share of the reading that was measured not to overlap.

    Args:
        reading: R, seconds that the loader takes for a batch.
        waited_share: s.
        beside: the parts of the rest of the step, seconds that add up to T.
    """
    left = reading
    for part in beside:
        left = left - part
    seconds: Real = np.maximum(waited_share * reading, left)
    return seconds


@dataclass(frozen=True)
class LinearCost:
    """Seconds of one exchange among all workers: ``T(M) = a + b M``."""

    start: float
    """a, seconds of a message without bytes."""
    per_byte: float
    """b, seconds."""

    def seconds(self, sizes: Array) -> Array:
        """Return T of messages of so many bytes; a message of none is not sent."""
        return np.where(sizes > 0, self.start + self.per_byte * sizes, 0.0)


@dataclass(frozen=True)
class StepParts:
    """One worker's step, seconds, and what it exchanges; layers in the order of the backward pass."""

    loading: float
    """t_io, seconds of the loader alone for a batch."""
    copy: float
    """t_h2d."""
    forward: float
    backward: Array
    """t_b of each layer with weights, with that of the layers behind which none follows, (layers,)."""
    update: float
    exchange: float
    """t_c, seconds of all exchanges of the framework's own, nothing computed."""
    sizes: Array
    """Bytes of each layer's gradients, (layers,)."""
    cost: LinearCost

    @property
    def computing(self) -> float:
        """Seconds of both passes."""
        return self.forward + float(self.backward.sum())


def sequential(parts: StepParts) -> float:
    """Return the step in which nothing runs beside anything: ``t_io + t_h2d + t_f + t_b + t_c + t_u``."""
    return parts.loading + parts.copy + parts.computing + parts.exchange + parts.update


def pipelined_input(parts: StepParts) -> float:
    """Return the step whose next batch is loaded beside it: ``max(t_io + t_h2d, t_f + t_b + t_c + t_u)``."""
    return _beside_input(parts, parts.computing + parts.exchange)


def single_message(parts: StepParts) -> float:
    """Return the step that sends all gradients as one message behind the backward pass: ``t_c = T(sum M)``."""
    return _beside_input(parts, parts.computing + float(parts.cost.seconds(parts.sizes.sum())))


def wait_free(parts: StepParts) -> float:
    """Return the step with wait-free back-propagation: each layer's gradient goes as soon as it is there.

    ``tau_c(l) = max(tau_c(l+1) + t_c(l+1), tau_b(l) + t_b(l))``, one exchange at a time.
    """
    lasting = parts.cost.seconds(parts.sizes)
    return _beside_input(parts, parts.forward + float(finish(np.cumsum(parts.backward), lasting)))


def merged(parts: StepParts) -> float:
    """Return the step that merges a layer's gradient into the next layer's where that saves more than it waits."""
    lasting = parts.cost.seconds(merge(parts.backward, parts.sizes, parts.cost))
    return _beside_input(parts, parts.forward + float(finish(np.cumsum(parts.backward), lasting)))


def hidden_exchange(parts: StepParts) -> float:
    """Return the step that hides all exchanges but that of the last gradient: ``t_f + t_b + t_c(1)``."""
    last = float(parts.cost.seconds(parts.sizes[-1]))
    return _beside_input(parts, parts.computing + last)


MODELS: Mapping[str, Callable[[StepParts], float]] = {
    "sequential": sequential,
    "pipelined input": pipelined_input,
    "single message": single_message,
    "wait-free": wait_free,
    "merged": merged,
    "hidden exchange": hidden_exchange,
}
"""Every model of the family by name, from the one that overlaps nothing to the one that overlaps most."""


def merge(backward: Array, sizes: Array, cost: LinearCost) -> Array:
    """Return the bytes that each layer sends when messages are merged; those of merged layers are 0.

    From the last layer of the network to its first, a layer's message joins that of the next layer to be differentiated
    if the link is busy until that gradient is there, or if waiting for it takes less than the start that is saved.

    Args:
        backward: seconds of each layer, in the order of the backward pass.
        sizes: bytes of each layer.
        cost: of a message.
    """
    ready = np.cumsum(backward)
    held, free = sizes.astype(float).copy(), 0.0
    for layer in range(len(held) - 1):
        start = max(free, ready[layer])
        following = ready[layer + 1]
        ends = start + float(cost.seconds(held[layer]))
        if following < ends and held[layer] and (start > following or following - start < cost.start):
            held[layer + 1] += held[layer]
            held[layer] = 0.0
        else:
            free = ends
    return held


def _beside_input(parts: StepParts, rest: float) -> float:
    return max(parts.loading + parts.copy, rest + parts.update)
