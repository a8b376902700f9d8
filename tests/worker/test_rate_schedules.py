"""Learning-rate schedules: their formulas, their warm-up, and what they have in common."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.study.training import full_parameters
from steptime.worker.rate_schedules import RATE_SCHEDULES, learning_rate

EPOCHS, PER_EPOCH = 12, 7


def training(name, *, warmup=0, **parameters):
    return {
        "epochs": EPOCHS,
        "steps_per_epoch": PER_EPOCH,
        "warmup_steps": warmup * PER_EPOCH,
        "learning_rate": 0.5,
        "rate_schedule": {"name": name, "parameters": full_parameters(name, parameters)},
    }


def rates(plan, losses=()):
    return [learning_rate(plan, step, losses) for step in range(EPOCHS * PER_EPOCH)]


@pytest.mark.parametrize("name", RATE_SCHEDULES)
@given(step=st.integers(0, EPOCHS * PER_EPOCH - 1), warmup=st.integers(0, 4))
def test_a_rate_is_positive_and_never_above_the_learning_rate(name, step, warmup):
    assert 0.0 < learning_rate(training(name, warmup=warmup), step, [1.0] * 20) <= 0.5


@pytest.mark.parametrize("name", sorted(set(RATE_SCHEDULES) - {"one_cycle"}))
def test_the_warm_up_rises_in_equal_steps_to_the_rate_behind_it(name):
    found = rates(training(name, warmup=2))
    risen = found[: 2 * PER_EPOCH + 1]

    steps = [later - earlier for earlier, later in itertools.pairwise(risen)]

    assert steps == pytest.approx([risen[-1] / (2 * PER_EPOCH + 1)] * len(steps))


@pytest.mark.parametrize("name", ["cosine", "polynomial"])
def test_a_falling_schedule_ends_at_its_minimum(name):
    plan = training(name, minimum=0.1)

    assert learning_rate(plan, EPOCHS * PER_EPOCH) == pytest.approx(0.05)
    assert rates(plan) == sorted(rates(plan), reverse=True)


def test_cosine_is_half_of_the_rate_in_the_middle():
    assert learning_rate(training("cosine"), EPOCHS * PER_EPOCH // 2) == pytest.approx(0.25)


def test_step_falls_with_the_epochs_of_the_whole_training():
    found = rates(training("step", warmup=1, every_epochs=4, factor=0.5))

    assert found[3 * PER_EPOCH] == 0.5
    assert found[4 * PER_EPOCH] == 0.25
    assert found[8 * PER_EPOCH] == 0.125


def test_multi_step_falls_at_its_milestones():
    found = rates(training("multi_step", at_epochs=[2, 5], factor=0.1))

    assert [found[epoch * PER_EPOCH] for epoch in (1, 2, 5)] == pytest.approx([0.5, 0.05, 0.005])


def test_cosine_restarts_at_the_full_rate_after_periods_that_double():
    found = rates(training("cosine_restarts", first_epochs=4, multiplier=2))

    assert found[0] == found[4 * PER_EPOCH] == 0.5
    assert found[4 * PER_EPOCH - 1] < 0.01


def test_one_cycle_has_its_peak_where_its_rise_ends():
    found = rates(training("one_cycle", rise=0.25))

    assert found.index(max(found)) == int(0.25 * EPOCHS * PER_EPOCH) - 1
    assert found[0] == pytest.approx(0.5 / 25)
    assert found[-1] == pytest.approx(0.5 / 250000)


def test_plateau_falls_where_more_epochs_than_its_patience_are_not_better():
    plan = training("plateau", patience=1, factor=0.1)

    assert learning_rate(plan, 0, [1.0, 1.0]) == 0.5
    assert learning_rate(plan, 0, [1.0, 1.0, 1.0]) == pytest.approx(0.05)
    assert learning_rate(plan, 0, [1.0, 0.5, 0.25]) == 0.5


def test_exponential_falls_by_its_factor_in_every_epoch():
    found = rates(training("exponential", factor=0.9))

    assert found[PER_EPOCH] / found[0] == pytest.approx(0.9)
    assert math.isclose(found[1] / found[0], 0.9 ** (1 / PER_EPOCH))


@pytest.mark.parametrize(
    ("name", "chosen", "said"),
    [
        ("step", {"every_epochs": 0}, "0 is not from 1"),
        ("cosine", {"power": 2}, "'power' is not a parameter"),
        ("multi_step", {"at_epochs": [5, 2]}, "numbers that grow"),
        ("plateau", {"patience": 1.5}, "not a whole number"),
    ],
)
def test_a_wrong_parameter_is_named(name, chosen, said):
    with pytest.raises(ValueError, match=said):
        full_parameters(name, chosen)
