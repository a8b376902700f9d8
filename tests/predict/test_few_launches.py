from dataclasses import replace

import numpy as np
import pytest
from world import KEY, World, a_profile, asked, observed

SINGLE = replace(KEY, strategy="single")


def width(prediction) -> float:
    """The interval's length on the scale of logarithms."""
    return float(np.log(prediction.step_s.high / prediction.step_s.low))


def test_values_that_are_all_equal_do_not_make_a_confident_number():
    found = asked(a_profile(observed(World(noise=0.0, jitter=0.0), 1)), 2, "batch_per_worker=32")
    assert width(found) > 0.03


def test_a_single_point_does_not_make_a_confident_number():
    profile = a_profile(observed(World(noise=0.0, launches=1), 1, [(1, 32)], SINGLE))
    assert width(asked(profile, 1)) > 0.1


def test_a_single_point_says_less_of_another_batch_than_of_its_own():
    profile = a_profile(observed(World(noise=0.0), 1, [(1, 32)], SINGLE))
    assert width(asked(profile, 1, "batch_per_worker=256")) > 1.2 * width(asked(profile, 1))


@pytest.mark.parametrize("seed", range(5))
def test_huge_noise_shows_in_the_interval(seed):
    profile = a_profile(observed(World(noise=1.0), seed))
    assert width(asked(profile, 2, "batch_per_worker=32")) > 1.0


def test_intervals_widen_with_reach():
    profile = a_profile(observed(World(), 1))
    widths = [width(asked(profile, workers, "cores_per_host=1")) for workers in (3, 6, 24, 192, 1024)]
    assert widths == sorted(widths)
    assert widths[-1] > 2 * widths[0]


def test_phases_that_are_negative_by_noise_yield_no_negative_prediction():
    noisy = [
        replace(
            each,
            launch_phases=tuple(replace(one, phases={**one.phases, "update": -0.001}) for one in each.launch_phases),
        )
        for each in observed(World(), 1)
    ]
    found = asked(a_profile(noisy), 2, "batch_per_worker=32")
    assert all(phase is None or phase.low_s >= 0.0 for name, phase in found.phases.items() if name != "residual")


@pytest.mark.parametrize("noise", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("breakdown", [True, False])
def test_two_batches_of_one_launch_each_yield_times_that_are_positive(noise, breakdown):
    world = World(noise=noise, launches=1, breakdown=breakdown)
    found = asked(a_profile(observed(world, 1, [(1, 32), (1, 64)], SINGLE)), 1, "batch_per_worker=32")
    for one in (found.step_s, found.throughput, found.efficiency):
        assert 0.0 < one.low <= one.value <= one.high < np.inf
    assert width(found) > 0.05
