import numpy as np
import pytest
from correlation import correlated

from steptime.measurements.interval import block_length, stationary_bootstrap


def mean(values):
    return values.mean(axis=-1)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_the_standard_error_of_a_mean_is_that_of_the_process(phi):
    """The variance of the mean of n steps is (1 + phi) / (1 - phi) / n."""
    series = correlated(np.random.default_rng(0), (30, 4_000), phi)
    errors = [stationary_bootstrap(each, mean, 200, block_length(each), seed=1).std() for each in series]
    assert np.mean(errors) == pytest.approx(np.sqrt((1 + phi) / (1 - phi) / 4_000), rel=0.1)


def test_blocks_of_one_ignore_correlation_and_give_too_small_an_error():
    series = correlated(np.random.default_rng(0), (4_000,), 0.8)
    alone = stationary_bootstrap(series, mean, 200, 1.0, seed=1).std()
    blocks = stationary_bootstrap(series, mean, 200, block_length(series), seed=1).std()
    assert alone < 0.5 * blocks


def test_blocks_grow_with_the_correlation():
    rng = np.random.default_rng(2)
    lengths = [np.mean([block_length(each) for each in correlated(rng, (20, 2_000), phi)]) for phi in (0.0, 0.5, 0.9)]
    assert lengths[0] < 3.0 < lengths[1] < lengths[2]


def test_the_block_length_of_an_autoregression_is_that_of_theory():
    """For the stationary bootstrap and AR(1), b = (4 phi² / (1 - phi²)²)^(1/3) n^(1/3)."""
    phi, size = 0.5, 100_000
    theory = (4.0 * phi**2 / (1.0 - phi**2) ** 2 * size) ** (1 / 3)
    found = [block_length(each) for each in correlated(np.random.default_rng(3), (10, size), phi)]
    assert np.mean(found) == pytest.approx(theory, rel=0.15)


def test_every_step_is_drawn_alike():
    drawn = stationary_bootstrap(np.arange(50.0), lambda values: values, 4_000, 8.0, seed=4)
    shares = np.bincount(drawn.astype(int).ravel(), minlength=50) / drawn.size
    assert shares == pytest.approx(np.full(50, 1 / 50), rel=0.1)


def test_neighbours_stay_together_for_the_mean_length_of_a_block():
    drawn = stationary_bootstrap(np.arange(1_000.0), lambda values: values, 50, 8.0, seed=5)
    breaks = (np.diff(drawn, axis=1) % 1_000 != 1).mean()
    assert breaks == pytest.approx(1 / 8, rel=0.1)


def test_the_same_seed_draws_the_same():
    series = correlated(np.random.default_rng(6), (100,), 0.5)
    once, again = (stationary_bootstrap(series, mean, 20, 4.0, seed=7) for _ in range(2))
    assert np.array_equal(once, again)


@pytest.mark.parametrize("series", [[1.0], [1.0, 2.0], [3.0] * 100])
def test_series_without_correlations_have_blocks_of_one(series):
    assert block_length(np.array(series)) == 1.0
