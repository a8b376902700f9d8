"""The slowest of p workers: against tables, against drawing all workers, and its limits."""

import numpy as np
import pytest

from steptime.model.worker_spread import WorkerSpread, expected_maximum


@pytest.mark.parametrize(("workers", "mean"), [(1, 0), (2, 0.56419), (4, 1.02938), (10, 1.53875), (100, 2.50759)])
def test_the_slowest_of_normal_workers_is_as_tabulated(workers, mean):
    assert expected_maximum(workers) == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("workers", [256, 1024])
def test_the_slowest_of_many_workers_is_as_drawn(workers):
    drawn = np.random.default_rng(0).standard_normal((4000, workers)).max(axis=1).mean()
    assert expected_maximum(workers) == pytest.approx(drawn, rel=0.006)


def test_waiting_for_the_slowest_grows_with_the_workers():
    factors = [float(WorkerSpread(0.05).imbalance_factor(count)) for count in (1, 2, 16, 256, 257, 100_000)]
    assert factors == sorted(factors)
    assert factors[0] == 1


def test_persistent_and_transient_differences_add_up_as_variances():
    both = WorkerSpread(0.03, 0.04).imbalance_factor(8)
    assert both == pytest.approx(WorkerSpread(0.05).imbalance_factor(8))
