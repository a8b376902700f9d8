"""Overlap of communication and of input: its closed form against the recursion, and its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.model.synchronous_sgd import exposed, finish, input_wait

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


def test_input_that_is_quicker_than_the_step_is_not_waited_for():
    assert input_wait(0.2, 0.0, 0.1, 0.2) == pytest.approx(0.0)


def test_input_that_is_slower_than_the_step_is_waited_for_by_the_difference():
    assert input_wait(0.5, 0.0, 0.1, 0.2) == pytest.approx(0.2)


def test_the_share_of_reading_that_does_not_overlap_is_waited_for_always():
    assert input_wait(0.2, 0.25, 1.0) == pytest.approx(0.05)
