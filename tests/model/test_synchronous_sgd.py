"""The S-SGD family on steps that were worked out by hand, and what holds of it for every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from steptime.model.synchronous_sgd import (
    MODELS,
    LinearCost,
    StepParts,
    hidden_exchange,
    merge,
    merged,
    pipelined_input,
    sequential,
    single_message,
    wait_free,
)

COST = LinearCost(start=1.0, per_byte=0.5)
PARTS = StepParts(
    loading=2.0,
    copy=0.0,
    forward=3.0,
    backward=np.array([1.0, 2.0, 1.0]),
    update=0.5,
    exchange=9.0,
    sizes=np.array([4.0, 2.0, 6.0]),
    cost=COST,
)


def test_nothing_overlaps_in_the_sequential_step():
    assert sequential(PARTS) == 2 + 3 + 4 + 9 + 0.5


def test_pipelined_input_is_hidden_where_the_rest_takes_longer():
    assert pipelined_input(PARTS) == 3 + 4 + 9 + 0.5


def test_a_step_takes_as_long_as_its_loader_where_that_takes_longer():
    slow = StepParts(**{**PARTS.__dict__, "loading": 40.0})
    assert {model(slow) for name, model in MODELS.items() if name != "sequential"} == {40.0}


def test_a_single_message_pays_one_start():
    assert single_message(PARTS) == 3 + 4 + (1 + 0.5 * 12) + 0.5


def test_wait_free_back_propagation_sends_each_gradient_as_soon_as_the_link_is_free():
    # Ready at 1, 3 and 4; exchanges of 3, 2 and 4 seconds: 1 to 4, 4 to 6, 6 to 10.
    assert wait_free(PARTS) == 3 + 10 + 0.5


def test_a_message_joins_the_next_where_the_link_is_busy_until_that_is_there():
    # The first exchange, 1 to 4, would end behind the second gradient at 3, but waiting for it costs more than a start.
    assert merge(PARTS.backward, PARTS.sizes, COST).tolist() == [4.0, 0.0, 8.0]


def test_merging_saves_starts():
    assert merged(PARTS) == 3 + (1 + 3 + 5) + 0.5


def test_a_hidden_exchange_leaves_that_of_the_last_gradient():
    assert hidden_exchange(PARTS) == 3 + 4 + (1 + 3) + 0.5


@given(
    some.lists(some.tuples(some.floats(0.0, 5.0), some.floats(1.0, 1e3)), min_size=1, max_size=12),
    some.floats(0.0, 1.0),
    some.floats(0.0, 0.01),
)
def test_no_model_is_shorter_than_computing_and_none_longer_than_the_sequential_step(layers, start, per_byte):
    cost = LinearCost(start, per_byte)
    backward, sizes = (np.array(column) for column in zip(*layers, strict=True))
    exchange = float(cost.seconds(sizes).sum())
    parts = StepParts(0.1, 0.0, 1.0, backward, 0.1, exchange, sizes, cost)
    found = {name: model(parts) for name, model in MODELS.items()}

    assert min(found.values()) >= parts.computing - 1e-9
    assert max(found.values()) <= found["sequential"] + 1e-9
    assert found["wait-free"] <= found["pipelined input"] + 1e-9


@given(some.lists(some.floats(1.0, 1e3), min_size=1, max_size=12), some.floats(0.0, 1.0))
def test_merged_messages_carry_all_bytes(sizes, start):
    held = merge(np.ones(len(sizes)), np.array(sizes), LinearCost(start, 0.001))
    assert held.sum() == pytest.approx(sum(sizes))
