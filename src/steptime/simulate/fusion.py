"""Tensor fusion (Horovod): gradients that are ready when a cycle begins travel together.

Cycles follow each other at the cycle time, or as soon as the exchanges of the last cycle are over if these take longer.
Source: A. Sergeev, M. Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv 1802.05799.

Link contention: exchanges during the backward pass that share one link.

Each exchange has a time that it takes alone, of which a part occupies the link. While several are in flight they
progress at full speed as long as the link has room for them, else each at the share that fits. Between two events
nothing changes, so that time jumps from one to the next, for all configurations at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ON_AVERAGE = 0.5
"""Of a cycle that a gradient waits for the next look."""


@dataclass(frozen=True)
class BusyCore:
    """Delays while computing holds the core that the communication thread waits for; (configurations,)."""

    until: Array | float = 0.0
    """When the computing is over."""
    look: Array | float = 0.0
    """Seconds more for a look, and at most what is left of the computing."""
    exchange: Array | float = 0.0
    """Seconds more for an exchange, likewise."""

    def longer(self, begin: Array, most: Array | float) -> Array:
        """Return by how many seconds a look or an exchange that begins then takes longer."""
        found: Array = np.minimum(most, np.maximum(self.until - begin, 0.0))
        return found


_FREE_CORE = BusyCore()


@dataclass(frozen=True)
class Readiness:
    """When each gradient is there: ``begin + lasting * share`` seconds, ascending."""

    shares: Array
    """(configurations or 1, gradients)."""
    begin: Array
    """(configurations,)."""
    lasting: Array
    """(configurations,)."""

    def at(self, index: NDArray[np.intp]) -> Array:
        """Return the seconds at which one gradient of each configuration is there."""
        rows = np.arange(len(index)) if len(self.shares) > 1 else 0
        seconds: Array = self.begin + self.lasting * self.shares[rows, index]
        return seconds

    def count_by(self, look: Array, least: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return how many gradients of each configuration are there at its look, at least ``least``."""
        if len(self.shares) > 1:
            return self._halved(look, least)
        # Gradients of one layer come together, so that a rounded share is off by one of the different ones at most.
        values = np.unique(self.shares[0])
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.searchsorted(values, (look - self.begin) / self.lasting, side="right")
        later = np.minimum(found, len(values) - 1)
        found = found + ((found < len(values)) & (self.begin + self.lasting * values[later] <= look))
        last = np.maximum(found - 1, 0)
        found = found - ((found > 0) & (self.begin + self.lasting * values[last] > look))
        counts = np.concatenate([[0], np.searchsorted(self.shares[0], values, side="right")])
        there: NDArray[np.intp] = np.maximum(counts[found], least)
        return there

    def _halved(self, look: Array, least: NDArray[np.intp]) -> NDArray[np.intp]:
        count = self.shares.shape[1]
        low, high = least.copy(), np.full(len(look), count)
        for _ in range(int(count).bit_length()):
            middle = (low + high) // 2
            there = (middle < high) & (self.at(np.minimum(middle, count - 1)) <= look)
            low = np.where(there, middle + 1, low)
            high = np.where(there, high, middle)
        return low


def fuse(  # noqa: PLR0913 - each is a quantity of the situation
    ready: Readiness,
    sizes: Array,
    lasting: Callable[[Array], Array],
    *,
    threshold: float,
    cycle: Array | float,
    negotiation: Array | float = 0.0,
    phase: Array | float = _ON_AVERAGE,
    busy_core: BusyCore = _FREE_CORE,
) -> tuple[Array, Array, Array]:
    """Return when the last exchange is over, the seconds of all exchanges, and how many there were; (configurations,).

    Args:
        ready: when each gradient is there.
        sizes: bytes of each, (gradients,).
        lasting: seconds of an exchange of so many bytes, (configurations,) to (configurations,).
        threshold: bytes up to which gradients travel together; a larger one travels alone.
        cycle: seconds between two looks.
        negotiation: seconds of each look that finds something, until all workers know what all have.
        phase: where in a cycle a gradient becomes ready, as a share of the wait for the next look.
        busy_core: delays by computing that the threads of exchanges wait for.
    """
    rows, count = len(ready.begin), len(sizes)
    sums = np.concatenate([[0.0], np.cumsum(sizes)])
    # With gradients in a fixed order the packs of a look depend on its first gradient alone.
    closes = np.maximum(np.searchsorted(sums, sums[:-1] + threshold, side="right") - 1, np.arange(count) + 1)
    first = np.zeros(rows, int)
    clock, spent, exchanges = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    while (first < count).any():
        active = first < count
        head = np.minimum(first, count - 1)
        earliest = ready.at(head)
        look = np.maximum(clock, earliest + phase * cycle)
        seen = np.maximum(ready.count_by(look, first), head + 1)
        agreeing = negotiation + busy_core.longer(look, busy_core.look)
        clock = np.where(active, look + agreeing, clock)
        spent = np.where(active, spent + agreeing, spent)
        while True:
            going = active & (head < seen)
            if not going.any():
                break
            place = np.minimum(head, count - 1)
            stop = np.minimum(closes[place], seen)
            seconds = lasting(sums[np.maximum(stop, place)] - sums[place]) + busy_core.longer(clock, busy_core.exchange)
            seconds = np.where(going, seconds, 0.0)
            clock, spent, exchanges = clock + seconds, spent + seconds, exchanges + going
            head = np.where(going, stop, head)
        first = np.where(active, seen, first)
    return clock, spent, exchanges


_TIMELY = 1e-12
"""Share of a step below which two moments are one."""


@dataclass(frozen=True)
class SharedExchanges:
    """When exchanges end and how long any is under way."""

    ends: Array
    """Of each exchange, seconds since the step's begin, (configurations, messages)."""
    busy: Array
    """Seconds in which at least one exchange was under way, (configurations,)."""


def share_link(ready: Array, start: Array, transfer: Array, computing: Array, *, in_flight: int = 1) -> SharedExchanges:
    """Simulate exchanges that are launched in order, up to so many at once.

    Args:
        ready: seconds of computing after which each can go, (configurations, messages).
        start: seconds of each that do not occupy the link, same shape.
        transfer: seconds of each that do, same shape.
        computing: seconds of computing in all, (configurations,).
        in_flight: how many progress at once.
    """
    rows, count = ready.shape
    alone = start + transfer
    with np.errstate(invalid="ignore", divide="ignore"):
        load = np.where(alone > 0, transfer / alone, 0.0)
    every = np.arange(rows)
    clock, busy = np.zeros(rows), np.zeros(rows)
    ends = np.full((rows, count), np.nan)
    launched = np.zeros(rows, int)
    # Slots first: what is summed or sought over few slots goes over whole rows at once then.
    left = np.zeros((in_flight, rows))
    holds = np.full((in_flight, rows), -1)
    grain = _TIMELY * (np.max(computing) + np.max(alone.sum(axis=1), initial=0.0) + np.finfo(float).tiny)
    # Every exchange becomes ready, starts and ends once, and computing ends once.
    for _ in range(3 * count + 2):
        for slot in range(in_flight):
            upcoming = np.minimum(launched, count - 1)
            goes = (holds[slot] < 0) & (launched < count) & (clock >= ready[every, upcoming] - grain)
            holds[slot] = np.where(goes, upcoming, holds[slot])
            left[slot] = np.where(goes, alone[every, upcoming], left[slot])
            launched += goes
        flying = holds >= 0
        any_flies = flying.any(axis=0)
        demand = np.where(flying, load[every, np.maximum(holds, 0)], 0.0).sum(axis=0)
        pace = 1.0 / np.maximum(1.0, demand)
        to_end = np.where(flying, left, np.inf).min(axis=0) / pace
        upcoming = np.minimum(launched, count - 1)
        goal = np.where(launched < count, np.minimum(ready[every, upcoming], computing), computing)
        goal = np.where(goal > clock + grain, goal, computing)
        to_goal = np.where(goal > clock + grain, goal - clock, np.inf)
        jump = np.minimum(to_end, to_goal)
        over = ~np.isfinite(jump)
        if over.all():
            break
        jump = np.where(over, 0.0, jump)
        clock += jump
        busy += jump * any_flies
        left -= jump * pace
        for slot in range(in_flight):
            done = (holds[slot] >= 0) & (left[slot] <= grain)
            ends[every[done], holds[slot, done]] = clock[done]
            holds[slot] = np.where(done, -1, holds[slot])
    return SharedExchanges(ends, busy)
