"""Link contention: exchanges during the backward pass that share one link.

Each exchange has a time that it takes alone, of which a part occupies the link. While several are in flight they
progress at full speed as long as the link has room for them, else each at the share that fits. Between two events
nothing changes, so that time jumps from one to the next, for all configurations at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

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
