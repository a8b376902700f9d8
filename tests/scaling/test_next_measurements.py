"""Which two counts to measure next: from posteriors whose answer is known."""

import numpy as np
import pytest

from steptime.curves.posterior import AssumedHosts, WeightedSamples
from steptime.scaling.further_pair import further_pair

WIDTH = 2 * 1.645
"""Standard deviations between the ends of an interval of 90 %."""
CANDIDATES = {4: 0, 8: 1, 16: 2}
TARGET = 3


def posterior_of(covariance, means=(0.0,)):
    """Members with one covariance, whose logarithms of all times have these means."""
    count, points = len(means), len(covariance)
    mean = np.repeat(np.asarray(means, dtype=float)[:, None], points, axis=1)
    samples = WeightedSamples(
        np.zeros((count, 1)), np.full(count, 1 / count), mean, np.array([covariance] * count, dtype=float), 0.0
    )
    return [AssumedHosts(8.0, False, 1.0, samples, np.full(points, 1e-9))]


def walk(*doublings, noise=0.0):
    """The covariance of a random walk over doublings, with noise of each point."""
    places = np.array(doublings, dtype=float)
    return np.minimum(places[:, None], places) + noise * np.eye(len(places))


def test_of_a_random_walk_the_points_next_to_the_target_are_named():
    pair = further_pair(posterior_of(0.04 * walk(1, 2, 3, 4)), CANDIDATES, TARGET)
    assert 16 in pair.workers
    assert np.log(pair.ratio) == pytest.approx(WIDTH * 0.2, rel=0.1)


def test_noisy_points_narrow_less_than_exact_ones():
    exact, noisy = (
        further_pair(posterior_of(0.04 * walk(1, 2, 3, 4, noise=noise)), CANDIDATES, TARGET) for noise in (0.0, 1.0)
    )
    assert exact.ratio < noisy.ratio


def test_points_that_know_nothing_of_the_target_narrow_nothing():
    pair = further_pair(posterior_of(0.04 * np.eye(4)), CANDIDATES, TARGET)
    assert np.log(pair.ratio) == pytest.approx(WIDTH * 0.2, rel=0.1)


def test_points_tell_which_of_two_explanations_is_true():
    apart = posterior_of(0.0004 * np.eye(4), means=(0.0, 1.0))
    pair = further_pair(apart, CANDIDATES, TARGET)
    assert np.log(pair.ratio) == pytest.approx(WIDTH * 0.02, rel=0.1)


@pytest.mark.parametrize("candidates", [{}, {4: 0}])
def test_fewer_than_two_counts_make_no_pair(candidates):
    assert further_pair(posterior_of(walk(1, 2, 3, 4)), candidates, TARGET) is None
