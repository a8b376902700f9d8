"""The slowest of many workers, beside drawing every one of them."""

import numpy as np
import pytest
from scipy import stats

from steptime.simulate.stragglers import Spread, classes_of, draw_slowest, expected_of_hosts, largest_of


def _every_worker(spread, workers, steps, launches, seed=0):
    """Return the slowest of each step, with all workers drawn, (launches, steps)."""
    generator = np.random.default_rng(seed)
    lasting = spread.persistent * generator.standard_normal((launches, 1, workers))
    passing = spread.transient * generator.standard_normal((launches, steps, workers))
    return 1 + (lasting + passing).max(axis=2)


@pytest.mark.parametrize("workers", [2, 3, 16, 200])
@pytest.mark.parametrize("spread", [Spread(0.0, 0.1), Spread(0.1, 0.0), Spread(0.05, 0.1)], ids=str)
def test_the_expected_slowest_is_that_of_drawing_all(workers, spread):
    drawn = _every_worker(spread, workers, 4, 3000).mean()

    assert float(spread.expected(workers)) == pytest.approx(drawn, abs=4e-3)


@pytest.mark.parametrize("workers", [2, 64, 1024])
def test_the_largest_has_the_distribution_of_the_largest(workers):
    drawn = largest_of(np.random.default_rng(1).random(4000), workers)
    every = np.random.default_rng(2).standard_normal((4000, workers)).max(axis=1)

    assert stats.ks_2samp(drawn, every).pvalue > 0.001


@pytest.mark.parametrize("workers", [4, 64, 1000])
@pytest.mark.parametrize("spread", [Spread(0.1, 0.02), Spread(0.05, 0.05), Spread(0.02, 0.1)], ids=str)
def test_steps_drawn_by_classes_are_those_of_drawing_all(workers, spread):
    generator = np.random.default_rng(5)
    launches = np.array([draw_slowest(spread, workers, 20, generator) for _ in range(600)])
    every = _every_worker(spread, workers, 20, 600, seed=6)

    assert launches.mean() == pytest.approx(every.mean(), abs=0.006)
    # Launches differ as they do with all workers drawn, and so do steps of a launch.
    assert launches.mean(axis=1).std() == pytest.approx(every.mean(axis=1).std(), rel=0.15)
    assert launches.std(axis=1).mean() == pytest.approx(every.std(axis=1).mean(), rel=0.05)


def test_a_million_workers_are_found_without_rounding_to_one():
    drawn = largest_of(np.random.default_rng(0).random(20_000), 1_000_000)

    assert drawn.mean() == pytest.approx(4.8635, abs=0.01)


@pytest.mark.parametrize("workers", [1, 2, 17, 1000, 1_000_000])
def test_classes_hold_all_workers_and_grow_as_a_logarithm(workers):
    scores, counts = classes_of(workers)

    assert counts.sum() == workers
    assert len(counts) <= 16 + np.log2(workers) + 1
    assert (np.diff(scores) < 0).all()


def test_equal_workers_wait_for_nobody():
    assert Spread().expected(1024) == 1.0


def test_one_worker_varies_and_waits_for_nobody():
    drawn = draw_slowest(Spread(0.3, 0.1), 1, 5000, np.random.default_rng(0))

    assert drawn.mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("factors", "workers"), [([1.0], [8]), ([1.0, 1.1], [15, 1]), ([1.0, 1.5], [3, 1]), ([1.0, 1.1, 1.2], [100, 10, 2])]
)
@pytest.mark.parametrize("deviation", [0.02, 0.1])
def test_slow_hosts_are_waited_for_as_in_drawing_all(factors, workers, deviation):
    generator = np.random.default_rng(4)
    mean = np.repeat(factors, workers)
    drawn = (mean * (1 + deviation * generator.standard_normal((20_000, len(mean))))).max(axis=1).mean()

    assert expected_of_hosts(factors, workers, Spread(0.0, deviation)) == pytest.approx(drawn, abs=3e-3)
