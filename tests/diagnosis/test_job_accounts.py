"""Accounts of whole jobs, whose truth is planted."""

import pytest
from simulated import a_training, a_trial, an_epoch

from steptime.diagnosis.job_accounts import training_account


def uses_of(*jobs):
    found = training_account("tried", jobs)
    assert found is not None
    return {use.name: use.seconds for use in found.uses}, found


def a_run(epochs, wall_s, **changes):
    return a_training(a_trial(workers=2), epochs=[[part, part] for part in epochs], wall_s=wall_s, **changes)


EPOCHS = [an_epoch(trained_s=seconds, evaluated_s=0.5, saved_s=0.25) for seconds in (4.0, 2.0, 2.0)]
"""The first takes two seconds more."""


def test_the_uses_of_a_job_sum_to_its_whole_time():
    uses, found = uses_of((a_run(EPOCHS, 20.0), []))

    assert sum(uses.values()) == pytest.approx(20.0)
    assert found.total_s == pytest.approx(20.0)


def test_every_use_is_found_again():
    uses, _ = uses_of((a_run(EPOCHS, 20.0), []))

    assert uses == pytest.approx(
        {"start_up": 9.75, "compilation": 2.0, "steps": 6.0, "evaluation": 1.5, "checkpoint": 0.75}
    )


def test_goodput_is_the_share_of_steps_that_count():
    _, found = uses_of((a_run(EPOCHS, 20.0), []))

    assert found.goodput.value == pytest.approx(6.0 / 20.0)


def test_a_launch_that_failed_costs_what_it_did_not_leave_behind():
    """The first launch made one epoch, of 4.75 s, and failed behind it; the second went on from there."""
    run = a_run(EPOCHS, 12.0, resumed_at=1)
    failed = a_run([], 10.0, status="failed", reason="worker-0: killed")
    uses, found = uses_of((run, [failed]))

    assert uses["restart"] == pytest.approx(10.0 - 4.75)
    assert found.total_s == pytest.approx(22.0)


def test_waiting_for_the_slowest_worker_is_no_step():
    slow, quick = an_epoch(trained_s=3.0), an_epoch(trained_s=1.0)
    run = a_training(a_trial(workers=2), epochs=[[slow, quick]], wall_s=5.0)
    uses, _ = uses_of((run, []))

    assert uses["held_up"] == pytest.approx(1.0)


def test_several_seeds_give_an_interval():
    _, found = uses_of((a_run(EPOCHS, 20.0), []), (a_run(EPOCHS, 25.0), []))

    assert found.jobs == 2
    assert found.goodput.low < found.goodput.value < found.goodput.high
