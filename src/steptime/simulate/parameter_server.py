"""Steps with parameter servers: gradients go up, weights come down, and the next forward pass waits for its own.

Each message crosses two links at once, its worker's and its server's; a server's carries the messages of all workers
one after the other (incast). Workers are alike, so that one of them stands for all.

Updates per second of asynchronous workers: closed queues in front of the servers and links that workers share.

Sources: M. Reiser, S. Lavenberg, "Mean-value analysis of closed multichain queuing networks", JACM 27 (1980) 313;
F. Baskett, K. Chandy, R. Muntz, F. Palacios, JACM 22 (1975) 248; F. Pollaczek, Math. Z. 32 (1930) 64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.intp]

_STEPS = 8
"""Steps until one is as long as the one before, at most: two or three, where links or processors are never idle."""
_SAME = 1e-9


@dataclass(frozen=True)
class ServerGroup:
    """Workers, servers and the links between them; (configurations,) each."""

    workers: Array
    rate: Array
    """Bytes per second of the links of every host, in each direction."""
    start: Array
    """Seconds of a message without bytes, one way."""
    update_rate: Array
    """Bytes of gradients that a server adds and applies per second."""
    colocated: bool = False
    """Whether servers share hosts and links with workers."""
    workers_per_host: Array | float = 1.0
    """Workers that share the link of their host."""


@dataclass(frozen=True)
class PushedKeys:
    """The messages of a step, in the order in which the backward pass completes them."""

    sizes: Array
    """Bytes, (keys,)."""
    shares: Array
    """Of each message, what each server gets, (keys, servers)."""
    ready: Array
    """Seconds after the forward pass when each can go, (keys, configurations); the last is ready at its end."""
    needed: Array
    """Seconds of the forward pass until its weights are needed, (keys, configurations)."""
    priorities: NDArray[np.int64]
    """Of those that wait for their worker's link, the highest goes first, (keys,)."""


def simulate_served_step(
    keys: PushedKeys, group: ServerGroup, forward: Array, *, at_start: bool, next_overlaps: bool
) -> Array:
    """Return the seconds of a step until the update, (configurations,).

    Args:
        keys: what is sent.
        group: the workers, the servers and their links.
        forward: seconds of the forward pass.
        at_start: whether weights are all pulled when a step begins, or each in answer to its push.
        next_overlaps: whether the next forward pass starts with the weights that have come.
    """
    links = _LinkTimes(keys, group)
    backward: Array = keys.ready[-1]
    if at_start:
        begun = _end_of_forward(keys, forward, links.pull_all(), 0.0)
        applied = np.max(links.push_all(begun), axis=0)
        # A worker hears of the update by one message, and asks for weights by the next.
        return np.asarray(np.maximum(begun + backward, applied) + 2.0 * group.start, float)
    if not next_overlaps:
        coming = links.answer_all(links.push_all(forward))
        return np.asarray(np.maximum(forward + backward, np.max(coming, axis=0)), float)
    clock, coming, period = np.zeros_like(forward), np.zeros_like(keys.ready), np.zeros_like(forward)
    for _ in range(_STEPS):
        begun = _end_of_forward(keys, forward, coming, clock)
        coming = links.answer_all(links.push_all(begun))
        before, period = period, begun + backward - clock
        clock = begun + backward
        if np.allclose(before, period, rtol=_SAME, atol=0.0):
            break
    return period


def _end_of_forward(keys: PushedKeys, forward: Array, coming: Array, earliest: Array | float) -> Array:
    """Return when a forward pass is over whose layers wait for their weights: the longest of all ways through it."""
    return np.asarray(np.maximum(earliest + forward, np.max(coming + forward - keys.needed, axis=0)), float)


class _LinkTimes:
    """When each link, and each server, is free again."""

    def __init__(self, keys: PushedKeys, group: ServerGroup) -> None:
        self._keys, self._group = keys, group
        count, servers = keys.shares.shape
        rows = keys.ready.shape[1]
        self._every = np.arange(rows)
        # What a worker sends to the server of its own host does not cross its link.
        inside = 1.0 / servers if group.colocated else 0.0
        others = group.workers - group.workers_per_host if group.colocated else group.workers
        sizes = keys.sizes[:, None]
        self._own = sizes * (1.0 - inside) * group.workers_per_host / group.rate
        self._incast = keys.shares[:, :, None] * sizes[:, None] * others / group.rate
        self._adds = keys.shares[:, :, None] * sizes[:, None] * group.workers / group.update_rate
        self._holds = np.broadcast_to(keys.shares[:, :, None] > 0, (count, servers, rows))
        self._up, self._down = np.zeros(rows), np.zeros(rows)
        self._into, self._out = np.zeros((servers, rows)), np.zeros((servers, rows))
        self._adding = np.zeros((servers, rows))

    def push_all(self, begun: Array) -> Array:
        """Send gradients, by priority where several wait; return when each is applied, (keys, configurations)."""
        ready = begun + self._keys.ready
        applied = np.zeros_like(ready)
        for chosen in self._turns(ready):
            begin = np.maximum(self._up, ready[chosen, self._every])
            self._up = begin + self._own[chosen, self._every]
            free = np.maximum(self._into, self._down) if self._group.colocated else self._into
            holds = self._holds[chosen, :, self._every].T
            into = np.maximum(free, begin) + self._incast[chosen, :, self._every].T
            self._into = np.where(holds, into, self._into)
            if self._group.colocated:
                self._down = np.maximum(self._down, np.where(holds, into, 0.0).max(axis=0))
            begins = np.maximum(self._adding, np.maximum(into, self._up) + self._group.start)
            added = begins + self._adds[chosen, :, self._every].T
            self._adding = np.where(holds, added, self._adding)
            applied[chosen, self._every] = np.where(holds, added, 0.0).max(axis=0)
        return applied

    def answer_all(self, applied: Array) -> Array:
        """Send each key's weights when they are there; return when a worker has them, (keys, configurations)."""
        return self._pull_in(np.argsort(applied, axis=0, kind="stable"), applied)

    def pull_all(self) -> Array:
        """Send all weights at once, in the order of the forward pass; return when a worker has each."""
        count, rows = self._keys.ready.shape
        order = np.broadcast_to(np.arange(count)[::-1, None], (count, rows))
        return self._pull_in(order, np.broadcast_to(self._group.start, (count, rows)))

    def _pull_in(self, order: Places, asked: Array) -> Array:
        there = np.zeros(asked.shape)
        for chosen in order:
            begin = asked[chosen, self._every]
            self._down = np.maximum(self._down, begin) + self._own[chosen, self._every]
            free = np.maximum(self._out, self._up) if self._group.colocated else self._out
            holds = self._holds[chosen, :, self._every].T
            out = np.maximum(free, begin) + self._incast[chosen, :, self._every].T
            self._out = np.where(holds, out, self._out)
            last = np.where(holds, out, 0.0).max(axis=0)
            if self._group.colocated:
                self._up = np.maximum(self._up, last)
            there[chosen, self._every] = np.maximum(last, self._down) + self._group.start
        return there

    def _turns(self, ready: Array) -> Places:
        """Return which key goes at each turn of the worker's link, (turns, configurations)."""
        priorities = self._keys.priorities
        if (priorities == priorities[0]).all():
            return np.broadcast_to(np.arange(len(ready))[:, None], ready.shape)
        own = np.broadcast_to(self._own, ready.shape)
        if (np.diff(priorities) > 0).all():
            return latest_first(ready, own, self._up)
        return highest_first(ready, own, self._up, priorities)


def highest_first(ready: Array, lasting: Array, free: Array, priorities: NDArray[np.int64]) -> Places:
    """Return the order of service where of those that wait the highest priority goes first, (turns, configurations).

    Args:
        ready: when each can go, (keys, configurations).
        lasting: seconds of each, same shape.
        free: when the first can be served, (configurations,).
        priorities: (keys,).
    """
    every = np.arange(ready.shape[1])
    waits, turns = np.ones(ready.shape, bool), []
    for _ in range(len(ready)):
        now = np.maximum(free, np.where(waits, ready, np.inf).min(axis=0))
        chosen = np.where(waits & (ready <= now), priorities[:, None], priorities.min() - 1).argmax(axis=0)
        waits[chosen, every] = False
        free = now + lasting[chosen, every]
        turns.append(chosen)
    return np.array(turns)


def latest_first(ready: Array, lasting: Array, free: Array) -> Places:
    """Return the same where keys come in ascending order of priority, so that those that wait are a stack.

    Each turn of the loop stacks one key or serves one, so that it takes two turns a key instead of one look at all.
    """
    count, rows = ready.shape
    every = np.arange(rows)
    turns, stack = np.zeros((count, rows), np.intp), np.zeros((count + 1, rows), np.intp)
    come, height, served = np.zeros((3, rows), np.intp)
    for _ in range(2 * count):
        coming = np.minimum(come, count - 1)
        moment = ready[coming, every]
        stacks = (come < count) & ((moment <= free) | (height == 0))
        free = np.where(stacks & (height == 0), np.maximum(free, moment), free)
        stack[height, every] = np.where(stacks, coming, stack[height, every])
        top = stack[np.maximum(height - 1, 0), every]
        serves = ~stacks & (height > 0)
        place = np.minimum(served, count - 1)
        turns[place, every] = np.where(serves, top, turns[place, every])
        free = np.where(serves, free + lasting[top, every], free)
        come, served, height = come + stacks, served + serves, height + stacks - serves
    return turns


_SPACING = 0.8
_EVEN_SERVICE = 0.6
_MOST = 4096
"""Workers up to which the recursion runs; beyond, the servers are busy all the time or never."""


def asynchronous_bound(workers: Array, thinking: Array, service: Array) -> Array:
    """Return the updates per second that workers at their own pace reach at most: ``min(p/(Z+S), 1/S)``.

    The bound is close where times vary little; see ``updates_in_turn`` for times that vary.

    Args:
        workers: p.
        thinking: Z, seconds that a worker computes between two visits to the server.
        service: S, seconds of one update at the server.
    """
    found: Array = np.minimum(workers / (thinking + service), 1 / np.asarray(service, dtype=float))
    return found


def updates_in_turn(
    workers: Array,
    thinking: Array,
    services: Sequence[Array],
    strays: Array | float = 0.0,
    service_variation: float = 0.0,
) -> Array:
    """Return the updates per second of all workers together where they are served one after the other.

    A worker computes for Z seconds, then waits for S seconds of a server, or of several. Where times hardly vary,
    workers fall into turns without waiting until a server is saturated: ``min(p/(Z + sum S), 1/max S)``. Where they
    vary as widely as exponential ones, mean-value analysis is exact. What lies between is taken from how widely a
    worker's arrival strays, in units of the time between two arrivals, ``1 - exp(-p s / (0.8 (Z + sum S)))``, and from
    what even services of random arrivals wait, a little more than half (Pollaczek). The two numbers were found by
    simulating events, which tests hold this to: half of the rates within 1 %, all within 10 %.

    Args:
        workers: p, whole numbers, (configurations,).
        thinking: Z, seconds between the end of the last service and the next request, (configurations,).
        services: S, seconds of one update at each server, (configurations,) each.
        strays: s, standard deviation of Z in seconds.
        service_variation: coefficient of variation of each S.
    """
    workers, thinking, *stations = _together(workers, thinking, services)
    return _between(workers, thinking, stations, _chance(workers, thinking, stations, strays, service_variation))


def updates_evenly(workers: Array, thinking: Array, services: Sequence[Array]) -> Array:
    """Return the updates per second of all workers together where all who are there are served at once, evenly.

    Of such servers only the mean times matter, however they are spread (F. Baskett, K. Chandy, R. Muntz, F. Palacios,
    JACM 22, 1975), so that mean-value analysis (M. Reiser, S. Lavenberg, 1980) holds for even times too, over all
    phases in which workers may run beside each other.

    Args:
        workers: p, whole numbers, (configurations,).
        thinking: seconds of a round in which a worker is at none of the servers, (configurations,).
        services: for each server, the seconds of one worker's update, alone, (configurations,) each.
    """
    workers, thinking, *stations = _together(workers, thinking, services)
    demand = np.stack(stations)
    queue, rate = np.zeros_like(demand), np.zeros(workers.shape)
    for count in range(1, int(min(workers.max(initial=1.0), _MOST)) + 1):
        response = demand * (1.0 + queue)
        goes = workers >= count
        rate = np.where(goes, count / (thinking + response.sum(axis=0)), rate)
        queue = np.where(goes, rate * response, queue)
    found: Array = np.where(workers > _MOST, _bound(workers, thinking, demand), rate)
    return found


def updates_over_links(
    workers: Array,
    thinking: Array,
    services: Sequence[Array],
    strays: Array | float = 0.0,
    *,
    ramp_s: Array | float = 0.0,
) -> Array:
    """Return the updates per second of all workers together where their messages share links.

    Messages on one link share it evenly. Where a further connection needs a while until it has its share, a message
    that is short beside that while is over before, so that such messages go in turn, and workers fall into step: one
    pushes while another pulls. What lies between is parted by the seconds of a message over that while.

    Args:
        workers: p, whole numbers, (configurations,).
        thinking: seconds of a round in which a worker is on none of the links, (configurations,).
        services: for each link, the seconds of one worker's messages on it, alone, (configurations,) each.
        strays: standard deviation of ``thinking``, seconds.
        ramp_s: seconds that a further connection needs until it has its share of a link.
    """
    workers, thinking, *stations = _together(workers, thinking, services)
    longest = np.max(stations, axis=0)
    in_turn = 1.0 - _chance(workers, thinking, stations, strays)
    held_s = np.maximum(ramp_s, np.finfo(float).tiny)
    return _between(workers, thinking, stations, 1.0 - in_turn * held_s / (longest + held_s))


def _chance(
    workers: Array,
    thinking: Array,
    stations: Sequence[Array],
    strays: Array | float,
    service_variation: float = 0.0,
) -> Array:
    """Return how far workers that are served in turn are from never meeting, 0, to meeting by chance, 1."""
    strays = np.hypot(strays, service_variation * np.max(stations, axis=0))
    alone = np.maximum(thinking + np.sum(stations, axis=0), np.finfo(float).tiny)
    chance = 1.0 - np.exp(-workers * strays / (_SPACING * alone))
    found: Array = chance * (_EVEN_SERVICE + (1.0 - _EVEN_SERVICE) * min(service_variation, 1.0) ** 2)
    return found


def _between(workers: Array, thinking: Array, stations: Sequence[Array], share: Array) -> Array:
    """Return the updates per second a share of the way from what workers in turn reach to what even sharing gives."""
    bound = _bound(workers, thinking, np.stack(stations))
    if not np.any(share):
        return bound
    rate: Array = bound + share * (updates_evenly(workers, thinking, stations) - bound)
    return rate


def _bound(workers: Array, thinking: Array, demand: Array) -> Array:
    longest = np.maximum(demand.max(axis=0), np.finfo(float).tiny)
    return np.asarray(asynchronous_bound(workers, thinking + demand.sum(axis=0) - longest, longest), float)


def _together(workers: Array, thinking: Array, services: Sequence[Array]) -> list[Array]:
    return list(np.broadcast_arrays(*(np.asarray(each, float) for each in (workers, thinking, *services))))
