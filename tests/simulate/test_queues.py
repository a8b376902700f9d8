"""Workers without steps, beside a simulation of every visit to the server."""

import heapq
from functools import partial

import numpy as np
import pytest
from brute_force import closed_queue

from steptime.simulate.parameter_server import (
    asynchronous_bound,
    updates_evenly,
    updates_in_turn,
    updates_over_links,
)


def _gamma(mean, variation):
    if variation == 0:
        return lambda _: mean
    shape = variation**-2
    return lambda generator: generator.gamma(shape, mean / shape)


def _simulated(workers, load, variations, seed=0):
    """Return rate and staleness for services of 0.1 s at ``load`` times what the server can do."""
    think = workers * 0.1 / load - 0.1
    found = closed_queue(
        workers, _gamma(think, variations[0]), _gamma(0.1, variations[1]), 10_000, np.random.default_rng(seed)
    )
    return think, *found


CASES = [
    (workers, load, variations)
    for workers in (2, 4, 16, 32)
    for load in (0.5, 0.8, 1.0, 1.3)
    for variations in ((0.02, 0), (0.1, 0), (0.3, 0), (0.3, 0.5), (1, 1))
]


@pytest.fixture(scope="module")
def errors():
    found = {}
    for case in CASES:
        workers, load, (thinking_cv, service_cv) = case
        think, rate, _ = _simulated(workers, load, (thinking_cv, service_cv))
        found[case] = float(updates_in_turn(workers, think, [0.1], thinking_cv * think, service_cv)) / rate - 1
    return found


def test_half_of_the_rates_are_within_one_percent(errors):
    assert np.median(np.abs(list(errors.values()))) < 0.01


def test_all_rates_are_within_a_tenth(errors):
    assert max(map(abs, errors.values())) < 0.10


@pytest.mark.parametrize("workers", [2, 8, 32])
def test_exponential_times_are_exact(workers):
    think, rate, _ = _simulated(workers, 1.0, (1, 1))

    assert float(updates_in_turn(workers, think, [0.1], think, 1.0)) == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("workers", [2, 8, 16])
@pytest.mark.parametrize("variation", [0, 0.3])
def test_an_update_is_as_stale_as_there_are_other_workers(workers, variation):
    _, _, late = _simulated(workers, 1.0, (variation, 0))

    assert late == pytest.approx(workers - 1, abs=0.01)


def test_a_queue_of_servers_stays_below_its_bound_and_reaches_it():
    for count in (1, 4, 16, 64):
        assert updates_evenly(count, 1.0, [0.1]) <= asynchronous_bound(count, 1.0, 0.1) * (1 + 1e-12)
    assert updates_evenly(200, 1.0, [0.1]) == pytest.approx(10.0, rel=1e-3)


def test_servers_that_are_busy_all_the_time_bound_the_rate():
    assert float(updates_in_turn(1000, 1.0, [0.1])) == pytest.approx(10.0)


def test_a_million_workers_are_no_harder_than_many():
    assert float(updates_in_turn(1_000_000, 1.0, [0.1], 0.3)) == pytest.approx(10.0)


def test_rates_grow_with_workers():
    rates = updates_in_turn(np.arange(1.0, 60.0), 1.0, [0.05], 0.2)

    assert (np.diff(rates) > -1e-12).all()


def _two_in_turn(workers, think, variation, services):
    """Return the rate of workers that take turns at one server and then at another."""
    generator = np.random.default_rng(0)
    draw = _gamma(think, variation)
    arrivals = [(draw(generator) * worker / workers, worker, 0) for worker in range(workers)]
    heapq.heapify(arrivals)
    free, ends = [0.0, 0.0], []
    while len(ends) < 4000:
        when, worker, server = heapq.heappop(arrivals)
        free[server] = max(free[server], when) + services[server]
        if server == 1:
            ends.append(free[1])
        heapq.heappush(arrivals, (free[server] + (draw(generator) if server else 0.0), worker, 1 - server))
    return 2000 / (ends[-1] - ends[-2001])


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("think", [0.02, 0.2, 0.6])
@pytest.mark.parametrize("variation", [0, 0.1])
def test_two_servers_in_turn_serve_as_many_as_simulated(workers, think, variation):
    rate = float(updates_in_turn(workers, think, [0.1, 0.08], variation * think))

    assert rate == pytest.approx(_two_in_turn(workers, think, variation, [0.1, 0.08]), rel=0.1)


def test_short_messages_go_in_turn_and_long_ones_shares():
    def rates(longer):
        think, services = 0.01 * longer, [0.02 * longer, 0.02 * longer]
        over_links = partial(updates_over_links, ramp_s=0.3)
        return [float(serve(2, think, services)) * longer for serve in (updates_in_turn, over_links, updates_evenly)]

    assert rates(0.01)[1] == pytest.approx(rates(0.01)[0], rel=0.01)
    assert rates(1e4)[1] == pytest.approx(rates(1e4)[2], rel=0.01)


@pytest.mark.parametrize("service", [1e-4, 1.0])
def test_messages_share_a_link_evenly_where_each_has_its_share_at_once(service):
    rate = float(updates_over_links(2, 0.01, [service, service]))

    assert rate == pytest.approx(float(updates_evenly(2, 0.01, [service, service])))


def _shared(workers, think, service, seed):
    """Return the rate of workers whose messages share one link evenly; times to think vary by a tenth."""
    generator = np.random.default_rng(seed)
    left, thinking, clock, done = generator.uniform(0, think, workers), np.ones(workers, bool), 0.0, 0
    while done < 4000:
        pace = np.where(thinking, 1.0, 1.0 / max((~thinking).sum(), 1))
        soonest = np.argmin(left / pace)
        jump = left[soonest] / pace[soonest]
        clock, left = clock + jump, left - jump * pace
        done += not thinking[soonest]
        thinking[soonest] = not thinking[soonest]
        left[soonest] = generator.gamma(100, think / 100) if thinking[soonest] else service
    return done / clock


@pytest.mark.parametrize("workers", [2, 4, 16])
@pytest.mark.parametrize("load", [0.5, 1.0, 1.5])
def test_even_messages_on_a_link_wait_as_simulated(workers, load):
    think = workers * 0.1 / load - 0.1 if workers * 0.1 / load > 0.12 else 0.02

    assert float(updates_evenly(workers, think, [0.1])) == pytest.approx(_shared(workers, think, 0.1, 0), rel=0.03)


def test_one_worker_waits_for_nobody_on_any_link():
    assert float(updates_over_links(1, 0.5, [0.3, 0.2])) == pytest.approx(1.0)


@pytest.mark.parametrize("workers", [400, 100_000])
def test_the_slowest_link_bounds_the_rate(workers):
    assert float(updates_over_links(workers, 0.5, [0.1, 0.02])) == pytest.approx(10.0, rel=1e-3)
