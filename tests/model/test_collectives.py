"""Every all-reduce algorithm: nothing for one worker, more for more bytes, and its textbook limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.model.collectives import ALLREDUCE, Link, all_gather, reduce_scatter

LINK = Link(rate=1e9, latency=1e-4)
SIZES = st.floats(0, 1e10)
WORKERS = st.integers(2, 4096)

every_algorithm = pytest.mark.parametrize("algorithm", ALLREDUCE.values(), ids=ALLREDUCE.keys())


@every_algorithm
def test_one_worker_has_nobody_to_talk_to(algorithm):
    assert algorithm(1e9, 1, LINK) == 0


@every_algorithm
@given(size=SIZES, more=SIZES, workers=WORKERS)
def test_more_bytes_take_longer(algorithm, size, more, workers):
    assert algorithm(size + more, workers, LINK) >= algorithm(size, workers, LINK)


@every_algorithm
@given(size=SIZES, exponent=st.integers(1, 11))
def test_twice_the_workers_take_no_less(algorithm, size, exponent):
    assert algorithm(size, 2 ** (exponent + 1), LINK) >= algorithm(size, 2**exponent, LINK) * (1 - 1e-12)


@every_algorithm
@given(size=SIZES, workers=WORKERS)
def test_no_algorithm_beats_the_bytes_that_must_travel(algorithm, size, workers):
    assert algorithm(size, workers, Link(rate=1e9)) >= 2 * (workers - 1) / workers * size / 1e9 * 0.5 * (1 - 1e-12)


@every_algorithm
def test_arrays_and_numbers_give_the_same(algorithm):
    workers = np.array([2.0, 4.0, 7.0, 64.0])
    assert algorithm(1e8, workers, LINK) == pytest.approx([float(algorithm(1e8, count, LINK)) for count in workers])


@pytest.mark.parametrize("name", ["ring", "halving_doubling"])
def test_long_messages_of_many_workers_tend_to_twice_their_bytes(name):
    assert ALLREDUCE[name](1e12, 4096, Link(rate=1e9)) == pytest.approx(2e3, rel=1e-3)


@pytest.mark.parametrize(("name", "steps"), [("ring", 126), ("halving_doubling", 12)])
def test_empty_messages_cost_a_latency_per_step(name, steps):
    assert ALLREDUCE[name](0.0, 64, LINK) == pytest.approx(steps * 1e-4)


def test_a_back_end_may_spend_several_latencies_per_step():
    assert ALLREDUCE["ring"](0.0, 4, Link(1e9, 1e-3, latencies_per_step=2)) == pytest.approx(12e-3)


@given(size=SIZES, workers=WORKERS)
def test_scattering_and_gathering_make_a_ring(size, workers):
    both = reduce_scatter(size, workers, LINK) + all_gather(size, workers, LINK)
    assert both == pytest.approx(ALLREDUCE["ring"](size, workers, LINK))
