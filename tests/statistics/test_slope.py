"""Growth by the median slope of all pairs."""

import numpy as np
import pytest
from scipy.stats import theilslopes

from steptime.statistics.slope import growth


@pytest.mark.parametrize("seed", range(5))
def test_growth_and_its_interval_are_those_of_scipy(seed):
    stream = np.random.default_rng(seed)
    at = np.cumsum(stream.uniform(0.5, 2.0, 40))
    values = np.round(3.0 * at + 10 * stream.normal(size=40))  # with ties
    expected = theilslopes(values, at, 0.95)
    found = growth(at, values)
    assert (found.value, found.low, found.high) == pytest.approx((expected[0], expected[2], expected[3]))


def test_single_wild_values_do_not_move_it():
    at = np.arange(50.0)
    values = 2.0 * at
    values[[7, 30]] = 1e6
    assert growth(at, values).value == pytest.approx(2.0, rel=0.05)


def test_of_many_values_some_are_taken():
    at = np.arange(20_000.0)
    assert growth(at, 0.5 * at).value == pytest.approx(0.5)
