"""Quantiles of steps, and stalls with their period."""

import random

import pytest
from stored_processes import ddp_job, sentences_of

STALL_MS = 1000.0


def stalls_at(numbers):
    return lambda number: [STALL_MS * (number in numbers)] * 2


def test_quantiles_of_equal_steps_are_the_step(tmp_path):
    spread = ddp_job(tmp_path, lambda _: [0.0, 0.0], steps=150).spread
    assert (spread.median_s, spread.p90_s, spread.p99_s) == pytest.approx((0.040, 0.040, 0.040))


def test_the_longest_step_is_named_by_its_number(tmp_path):
    spread = ddp_job(tmp_path, stalls_at({77}), steps=150).spread
    assert (spread.longest_step, spread.longest_s) == (77, pytest.approx(1.040))


@pytest.mark.parametrize(("steps", "known"), [(9, (False, False)), (60, (True, False)), (150, (True, True))])
def test_a_quantile_of_too_few_steps_is_null(tmp_path, steps, known):
    spread = ddp_job(tmp_path, lambda _: [0.0, 0.0], steps=steps).spread
    assert (spread.p90_s is not None, spread.p99_s is not None) == known


@pytest.mark.parametrize("every", [10, 12, 25])
def test_regular_stalls_are_named_with_their_period(tmp_path, every):
    run = ddp_job(tmp_path, stalls_at(set(range(every, 150, every))), steps=150)
    assert run.spread.stalls.every == pytest.approx(every)
    assert f"every {every} steps" in sentences_of(run)["stalls"]


def test_irregular_stalls_have_no_period(tmp_path):
    run = ddp_job(tmp_path, stalls_at(set(random.Random(3).sample(range(5, 150), 8))), steps=150)
    assert run.spread.stalls.every is None
    assert "at no regular distance" in sentences_of(run)["stalls"]


def test_the_share_of_stalls_is_of_the_time_of_steps(tmp_path):
    stalls = ddp_job(tmp_path, stalls_at(set(range(12, 150, 12))), steps=150).spread.stalls
    assert stalls.share == pytest.approx(1.04 * stalls.count / (1.0 * stalls.count + 0.04 * stalls.steps), rel=0.01)


@pytest.mark.parametrize(
    "late",
    [lambda _: [0.0, 0.0], lambda number: [STALL_MS * (number == 50)] * 2, lambda number: [30.0 * (number % 2)] * 2],
    ids=["none", "a single one", "two kinds of steps"],
)
def test_other_runs_have_no_stalls(tmp_path, late):
    assert ddp_job(tmp_path, late, steps=150).spread.stalls is None
