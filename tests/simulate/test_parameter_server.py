"""The order in which a worker's link serves what waits for it."""

import heapq

import numpy as np
import pytest

from steptime.simulate.parameter_server import highest_first, latest_first


def _one_by_one(ready, lasting, free, priorities):
    waiting, order, upcoming = [], [], 0
    while len(order) < len(ready):
        if not waiting:
            free = max(free, ready[upcoming])
        while upcoming < len(ready) and ready[upcoming] <= free:
            heapq.heappush(waiting, (-priorities[upcoming], upcoming))
            upcoming += 1
        order.append(heapq.heappop(waiting)[1])
        free += lasting[order[-1]]
    return order


def _situation(seed):
    generator = np.random.default_rng(seed)
    ready = np.sort(generator.uniform(0, 1, (12, 9)), axis=0)
    return ready, generator.uniform(0, 0.2, (12, 9)), generator.uniform(0, 0.3, 9)


@pytest.mark.parametrize("seed", range(6))
def test_priorities_are_those_of_a_heap(seed):
    situation, priorities = _situation(seed), np.random.default_rng(seed).permutation(12)

    turns = highest_first(*situation, priorities)

    for row in range(9):
        ready, lasting, free = (each[..., row] for each in situation)
        assert turns[:, row].tolist() == _one_by_one(ready, lasting, free, priorities)


@pytest.mark.parametrize("seed", range(6))
def test_a_stack_serves_as_ascending_priorities_do(seed):
    situation = _situation(seed)

    assert (latest_first(*situation) == highest_first(*situation, np.arange(12))).all()
