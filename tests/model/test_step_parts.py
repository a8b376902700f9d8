"""The parts of a step, against simulation where there is one and at their limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.model.collectives import Link
from steptime.model.compute import layer_seconds, step_seconds
from steptime.model.gradient_bytes import gradient_bytes
from steptime.model.imbalance import expected_maximum, imbalance_factor
from steptime.model.input import host_input_seconds, with_input
from steptime.model.overlap import exposed, finish
from steptime.model.parameter_server import synchronous_exchange

TIMES = st.floats(0, 10)


@given(buckets=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=30))
def test_the_closed_form_of_overlap_is_the_recursion(buckets):
    done = 0.0
    for ready, lasting in buckets:
        done = max(done, ready) + lasting
    ready, lasting = np.array(buckets).T
    assert finish(ready, lasting) == pytest.approx(done, abs=1e-9)


@given(communication=TIMES, window=TIMES, share=st.floats(0, 1))
def test_what_is_waited_for_lies_between_nothing_and_everything(communication, window, share):
    assert 0 <= exposed(communication, window, share) <= communication * (1 + 1e-12)


def test_all_of_a_long_exchange_but_its_window_is_waited_for():
    assert exposed(10.0, 2.0, 1.0) == pytest.approx(8.0)


@pytest.mark.parametrize(("workers", "mean"), [(1, 0), (2, 0.56419), (4, 1.02938), (10, 1.53875), (100, 2.50759)])
def test_the_slowest_of_normal_workers_is_as_tabulated(workers, mean):
    assert expected_maximum(workers) == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("workers", [256, 1024])
def test_the_slowest_of_many_workers_is_as_drawn(workers):
    drawn = np.random.default_rng(0).standard_normal((4000, workers)).max(axis=1).mean()
    assert expected_maximum(workers) == pytest.approx(drawn, rel=0.006)


def test_waiting_for_the_slowest_grows_with_the_workers():
    factors = [float(imbalance_factor(count, 0.05)) for count in (1, 2, 16, 256, 257, 100_000)]
    assert factors == sorted(factors)
    assert factors[0] == 1


def test_enough_servers_leave_the_link_of_the_worker():
    assert synchronous_exchange(1e9, 8, 64, Link(1e9)) == pytest.approx(1.0)
    assert synchronous_exchange(1e9, 8, 1, Link(1e9)) == pytest.approx(8.0)


def test_small_batches_take_as_long_as_their_kernels_need_to_start():
    assert step_seconds(np.array([1, 100]), 0.0, 1e-3, floor=0.02) == pytest.approx([0.02, 0.1])


def test_the_layers_of_a_step_add_up_to_what_was_measured():
    parts = layer_seconds(3.0, [1e9, 2e9, 0], [1e6, 1e6, 1e9], 1e9, 1e9)
    assert parts.sum() == pytest.approx(3.0)
    assert parts == pytest.approx(np.array([1, 2, 1]) * 0.75)


def test_prefetched_input_costs_only_where_it_is_the_slower_stage():
    reading = host_input_seconds(32, 8, loader_rate=1000, host_rate=1280)
    assert reading == pytest.approx(0.2)
    assert with_input(0.1, reading) == pytest.approx(0.2)
    assert with_input(0.3, reading) == pytest.approx(0.3)
    assert with_input(0.3, reading, prefetched=False) == pytest.approx(0.5)


@pytest.mark.parametrize(("name", "millions"), [("resnet50", 25.6), ("bert_base", 109.5), ("bert_large", 335.1)])
def test_gradients_are_as_large_as_published(name, millions):
    assert gradient_bytes(name) == pytest.approx(millions * 4e6, rel=2e-3)


def test_an_unknown_workload_has_unknown_gradients():
    assert gradient_bytes("something else") is None
