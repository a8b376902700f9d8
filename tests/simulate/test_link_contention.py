"""Exchanges that share a link, beside a simulation in small steps of time."""

import numpy as np
import pytest
from brute_force import shared_link
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.model.synchronous_sgd import finish
from steptime.simulate.fusion import share_link

_SECONDS = st.floats(0.01, 2.0)


def _share(ready, start, transfer, computing, **how):
    rows = (np.atleast_2d(np.asarray(each, float)) for each in (ready, start, transfer))
    return share_link(*rows, np.atleast_1d(np.asarray(computing, float)), **how)


@pytest.mark.parametrize("in_flight", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_ends_are_those_of_small_steps(in_flight, seed):
    generator = np.random.default_rng(seed)
    ready = np.sort(generator.uniform(0, 1, 5))
    start, transfer = generator.uniform(0.01, 0.2, (2, 5))

    played = _share(ready, start, transfer, 1.1, in_flight=in_flight)
    ends = shared_link((ready, start, transfer), in_flight, 1e-4)

    assert played.ends[0] == pytest.approx(ends, abs=3e-3)


@given(st.lists(st.tuples(_SECONDS, _SECONDS, _SECONDS), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_one_in_flight_is_the_recursion(messages):
    ready, start, transfer = np.array(messages).T
    ready = np.sort(ready)

    played = _share(ready, start, transfer, ready[-1])

    assert played.ends.max() == pytest.approx(float(finish(ready, start + transfer)))


@given(st.lists(st.tuples(_SECONDS, _SECONDS), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_last_end_does_not_depend_on_how_many_share_a_link_that_is_never_idle(messages, in_flight):
    ready, transfer = np.array(messages).T
    ready = np.sort(ready)

    one = _share(ready, np.zeros_like(ready), transfer, ready[-1])
    several = _share(ready, np.zeros_like(ready), transfer, ready[-1], in_flight=in_flight)

    assert several.ends.max() == pytest.approx(one.ends.max())


def test_two_in_flight_hide_each_others_latencies():
    both = {"ready": [0.0, 0.0], "start": [1.0, 1.0], "transfer": [1.0, 1.0], "computing": 0.0}

    assert _share(**both).ends.max() == pytest.approx(4.0)
    assert _share(**both, in_flight=2).ends.max() == pytest.approx(2.0)


def test_busy_are_the_seconds_in_which_anything_is_under_way():
    played = _share([0.5, 0.7, 2.0], [0.0] * 3, [1.0, 1.0, 0.5], 2.0, in_flight=2)

    assert played.busy[0] == pytest.approx(2.5)


def test_a_later_small_exchange_overtakes_a_large_one():
    played = _share([0.0, 0.0], [0.0, 0.0], [4.0, 1.0], 0.0, in_flight=2)

    assert played.ends[0] == pytest.approx([5.0, 2.0])


def test_configurations_do_not_know_of_each_other():
    generator = np.random.default_rng(3)
    ready = np.sort(generator.uniform(0, 1, (20, 4)))
    start, transfer = generator.uniform(0, 0.3, (2, 20, 4))
    computing = ready[:, -1] + 0.1

    together = share_link(ready, start, transfer, computing, in_flight=2)
    for row in range(20):
        alone = _share(ready[row], start[row], transfer[row], computing[row], in_flight=2)
        assert together.ends[row] == pytest.approx(alone.ends[0])
