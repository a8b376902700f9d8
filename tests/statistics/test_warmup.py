import numpy as np
import pytest
from correlation import correlated

from steptime.statistics.warmup import find_steady, inefficiencies, is_transient


def steps(seed, size, phi=0.0):
    return np.exp(0.03 * correlated(np.random.default_rng(seed), (size,), phi))


@pytest.mark.parametrize("size", [200, 2_000, 20_000])
def test_a_slow_start_is_dropped_and_little_else(size):
    """A transient that has decayed to 5 % after a tenth of the run."""
    length = size // 10
    times = steps(1, size) * (1.0 + np.exp(-3.0 * np.arange(size) / length))
    start = find_steady(times).start
    assert 0.5 * length < start < 0.35 * size


def test_a_sudden_change_early_in_the_run_is_dropped():
    times = steps(2, 1_000)
    times[:150] *= 1.5
    assert 150 <= find_steady(times).start <= 220


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_steady_series_is_kept_almost_whole(phi):
    shares = [find_steady(steps(seed, 500, phi)).start / 500 for seed in range(100)]
    assert np.mean(shares) < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_never_more_than_half_is_dropped(seed):
    trend = np.linspace(2.0, 1.0, 400)
    assert find_steady(trend * steps(seed, 400)).start <= 200


def test_one_slow_step_does_not_hide_the_transient():
    times = steps(3, 1_000)
    times[:100] *= 1.5
    times[700] *= 50.0
    assert 90 <= find_steady(times).start <= 200


@pytest.mark.parametrize(("phi", "expected"), [(0.0, 1.0), (0.5, 3.0), (0.9, 19.0)])
def test_the_inefficiency_is_that_of_the_process(phi, expected):
    """(1 + phi) / (1 - phi) for a first-order autoregression."""
    found = inefficiencies(correlated(np.random.default_rng(4), (40, 5_000), phi))
    assert np.median(found) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("phi", [0.5, 0.9])
def test_averaging_long_series_in_blocks_does_not_change_the_inefficiency(phi):
    expected = (1 + phi) / (1 - phi)
    found = [find_steady(steps(seed, 30_000, phi)).inefficiency for seed in range(10)]
    assert np.median(found) == pytest.approx(expected, rel=0.25)


def test_effective_steps_never_exceed_the_steps_that_are_left():
    for seed in range(20):
        alternating = 1.0 + 0.1 * (-1.0) ** np.arange(100) + 0.01 * steps(seed, 100)
        found = find_steady(alternating)
        assert found.inefficiency >= 1.0
        assert found.effective <= 100 - found.start


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 50])
def test_steps_of_equal_length_are_all_kept(size):
    found = find_steady(np.full(size, 0.25))
    assert (found.start, found.inefficiency, found.effective) == (0, 1.0, size)


def test_no_steps_are_worth_none():
    assert find_steady(np.empty(0)).effective == 0.0


STATIONARY = {
    "correlated": lambda rng: np.exp(0.5 * correlated(rng, (60,), 0.6)),
    "heavy tails": lambda rng: 1.0 + 0.05 * np.abs(correlated(rng, (60,), 0.3)) ** 3,
    "without a mean square": lambda rng: 1.0 + 0.1 * rng.pareto(1.5, 60),
    "stalls": lambda rng: np.where(rng.random(60) < 0.1, 5.0, 1.0) * np.exp(0.02 * rng.standard_normal(60)),
}


def left_out(times):
    start = find_steady(times).start
    return start if start <= 2 or is_transient(times, start) else 0


@pytest.mark.parametrize("name", STATIONARY)
def test_of_a_short_steady_run_few_steps_are_taken_for_a_transient(name):
    shares = [left_out(STATIONARY[name](np.random.default_rng(seed))) / 60 for seed in range(100)]
    assert np.mean(shares) <= 0.03


GROWN = {
    "clock": lambda index: np.where(index < 15, 1.3, 1.0),
    "slower later": lambda index: np.where(index < 15, 0.8, 1.0),
    "caches": lambda index: 1.0 + np.exp(-index / 5.0),
    "compilation": lambda index: np.where(index < 10, 10.0, 1.0),
}


@pytest.mark.parametrize("name", GROWN)
def test_a_planted_transient_of_a_short_run_is_told_from_chance(name):
    found = []
    for seed in range(50):
        noise = np.exp(0.05 * correlated(np.random.default_rng(seed), (60,), 0.3))
        found.append(left_out(noise * GROWN[name](np.arange(60))))
    assert np.median(found) >= 9
