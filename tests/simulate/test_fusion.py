"""Fused exchanges, beside a loop over looks."""

import numpy as np
import pytest
from brute_force import fused

from steptime.simulate.fusion import BusyCore, Readiness, fuse


def there(seconds):
    """Return a readiness of seconds, (configurations, gradients)."""
    return Readiness(seconds, np.zeros(len(seconds)), np.ones(len(seconds)))


def _seconds(size):
    return 0.02 + 0.05 * size


@pytest.mark.parametrize("threshold", [0.0, 3.0, 10.0, 1e9])
@pytest.mark.parametrize("cycle", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("held", [(0.0, 0.0, 0.0), (2.5, 0.1, 0.2), (1.0, 0.4, 5.0)])
@pytest.mark.parametrize("seed", range(3))
def test_ends_are_those_of_a_loop(threshold, cycle, held, seed):
    generator = np.random.default_rng(seed)
    ready, sizes = np.sort(generator.uniform(0, 2, 12)), generator.uniform(0.5, 4.0, 12)

    looks = {"threshold": threshold, "cycle": cycle, "negotiation": 0.01}
    waiting = list(zip(ready, sizes, strict=True))

    end, _, _ = fuse(there(ready[None]), sizes, _seconds, busy_core=BusyCore(*held), **looks)

    assert end[0] == pytest.approx(fused(waiting, _seconds, looks.values(), held))


def test_nothing_is_fused_with_a_threshold_of_zero():
    _, _, exchanges = fuse(there(np.zeros((1, 7))), np.ones(7), np.zeros_like, threshold=0.0, cycle=0.0)

    assert exchanges[0] == 7


def test_all_that_is_there_travels_together():
    end, spent, exchanges = fuse(there(np.zeros((1, 7))), np.ones(7), lambda size: 1 + size, threshold=100, cycle=2.0)

    assert (end[0], spent[0], exchanges[0]) == (1.0 + 8.0, 8.0, 1)


def test_configurations_do_not_know_of_each_other():
    generator = np.random.default_rng(0)
    ready, sizes = np.sort(generator.uniform(0, 2, (30, 9))), generator.uniform(1, 2, 9)
    pace = generator.uniform(0.01, 0.2, 30)

    def run(rows):
        return fuse(there(ready[rows]), sizes, lambda size: 0.01 + pace[rows] * size, threshold=4, cycle=0.1)[0]

    assert run(np.arange(30)) == pytest.approx([run(np.array([row]))[0] for row in range(30)])


@pytest.mark.parametrize("seed", range(5))
def test_gradients_that_are_there_are_counted_alike_for_shared_and_for_own_shares(seed):
    """Also at the very moment when several come together, and where the passes take no time."""
    generator = np.random.default_rng(seed)
    shares = np.sort(generator.choice(generator.uniform(0, 1, 20), 60))
    begin, lasting = generator.uniform(0, 1, 400), generator.uniform(0, 1, 400) * (generator.random(400) < 0.9)
    exactly = begin + lasting * generator.choice(shares, 400)
    look = np.where(generator.random(400) < 0.7, exactly, generator.uniform(0, 2, 400))
    least = generator.integers(0, 60, 400)

    together = Readiness(shares[None], begin, lasting).count_by(look, least)

    own = Readiness(np.tile(shares, (400, 1)), begin, lasting).count_by(look, least)
    counted = ((begin[:, None] + lasting[:, None] * shares) <= look[:, None]).sum(axis=1)
    assert together.tolist() == own.tolist() == np.maximum(counted, least).tolist()
