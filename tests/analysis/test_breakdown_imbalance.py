"""Who is slow, and whether always the same one, where both are known."""

import pytest
from launch_phases import STAGES, launch_of

from steptime.analysis.ablation.imbalance import ComputeImbalance, imbalance
from steptime.analysis.ablation.stages import stage_times_of

COMPUTED = STAGES["forward"] + STAGES["backward"] + STAGES["local"]


def found(workers: int = 4, **changes) -> ComputeImbalance:
    result = imbalance(stage_times_of([launch_of(seed, workers, **changes) for seed in range(3)]))
    assert result is not None
    return result


def test_workers_that_are_alike_have_the_factor_1():
    assert found(noise=0.0).factor.value == pytest.approx(1.0)


def test_noise_alone_blames_nobody():
    assert found(noise=0.05, blocks=20).blamed_worker is None


@pytest.mark.parametrize("rank", range(4))
def test_a_worker_at_half_speed_is_blamed(rank):
    assert found(slow={rank: 2.0}).blamed_worker == rank


def test_a_slow_worker_is_persistent_by_as_much_as_it_is_slow():
    result = found(slow={1: 2.0}, noise=0.0)
    assert result.factor.value == pytest.approx(2.0 / 1.25)
    assert result.persistent.value == pytest.approx(2.0 / 1.25 - 1.0)
    assert result.transient.value == pytest.approx(0.0, abs=1e-12)


def test_pauses_of_whoever_happens_to_pause_are_transient():
    result = found(pauses=(0.2, COMPUTED), noise=0.0, blocks=40, steps=25)
    assert result.blamed_worker is None
    assert result.transient.value > 5 * result.persistent.value


def test_two_slow_workers_are_not_blamed_on_one():
    assert found(slow={0: 2.0, 1: 2.0}).blamed_worker is None


def test_the_three_parts_add_up():
    result = found(slow={2: 1.3}, pauses=(0.1, 0.02))
    assert result.factor.value == pytest.approx(1.0 + result.persistent.value + result.transient.value)


def test_every_workers_computation_is_given():
    result = found(slow={3: 1.5}, noise=0.0)
    assert [each.value for each in result.compute_s] == pytest.approx([COMPUTED] * 3 + [1.5 * COMPUTED])


def test_one_worker_has_no_imbalance():
    assert imbalance(stage_times_of([launch_of(0, workers=1)])) is None


def test_a_framework_without_a_stage_of_computation_alone_has_none():
    assert imbalance(stage_times_of([launch_of(0, drop=("forward", "backward", "local"))])) is None
