"""Slow and simple simulations, event by event, to hold closed forms against."""

import heapq

import numpy as np


def closed_queue(workers, think, serve, updates, generator):
    """Return updates per second and mean staleness of workers that take turns at one server."""
    arrivals = [(think(generator), worker) for worker in range(workers)]
    heapq.heapify(arrivals)
    free, pulled, late, times = 0.0, [0] * workers, [], []
    for version in range(updates):
        when, worker = heapq.heappop(arrivals)
        free = max(free, when) + serve(generator)
        late.append(version - pulled[worker])
        pulled[worker] = version + 1
        times.append(free)
        heapq.heappush(arrivals, (free + think(generator), worker))
    half = updates // 2
    return half / (times[-1] - times[-1 - half]), np.mean(late[half:])


def shared_link(situation, in_flight, tick):
    """Return the ends of exchanges, by small steps of time."""
    ready, start, transfer = situation
    count = len(ready)
    alone = np.add(start, transfer)
    load = np.divide(transfer, alone)
    left, flying, launched = dict.fromkeys(range(count)), [], 0
    ends, clock = [None] * count, 0.0
    while None in ends:
        while len(flying) < in_flight and launched < count and clock >= ready[launched] - 1e-12:
            flying.append(launched)
            left[launched] = alone[launched]
            launched += 1
        pace = 1.0 / max(1.0, sum(load[each] for each in flying))
        clock += tick
        for each in list(flying):
            left[each] -= tick * pace
            if left[each] <= 0:
                flying.remove(each)
                ends[each] = clock
    return ends


def fused(waiting, seconds, looks, held):
    """Return when all is sent by a thread that looks every cycle and first in the middle of one.

    ``looks`` are their threshold, cycle and negotiation; ``held`` is when computing is over, and what a look and an
    exchange last longer before, at most until then.
    """
    threshold, cycle, negotiation = looks
    until, look, exchange = held
    clock = 0.0
    while waiting:
        clock = max(clock, waiting[0][0] + cycle / 2)
        there = [size for moment, size in waiting if moment <= clock]
        waiting = waiting[len(there) :]
        clock += negotiation + min(look, max(until - clock, 0.0))
        while there:
            pack = [there.pop(0)]
            while there and sum(pack) + there[0] <= threshold:
                pack.append(there.pop(0))
            clock += seconds(sum(pack)) + min(exchange, max(until - clock, 0.0))
    return clock
