"""Intervals of the steps of two trials, too few for their spread to be pooled: neither knows less of it than both."""

import numpy as np
import pytest
from simulated import a_launch, a_store, a_trial

from steptime.analysis.summary import summarise
from steptime.statistics.estimate import least_half_widths
from steptime.statistics.interval import LEVEL, half_width_between
from steptime.statistics.launch_times import LaunchTimes

STATES = 0.05
"""How far apart the logarithms of launches are that ended in one of two states."""


def launches_of(logs):
    return {
        str(row): [LaunchTimes(block, np.exp([log]), 0, float(log), 0.0) for block, log in enumerate(own)]
        for row, own in enumerate(logs)
    }


def half_widths(logs):
    """Return that of each row's step, as a report has it."""
    least = least_half_widths(launches_of(logs), LEVEL)
    return np.maximum(half_width_between(logs), [least.get(str(row), 0.0) for row in range(len(logs))])


@pytest.mark.parametrize("launches", [3, 4])
def test_intervals_hold_the_typical_launch_of_two_states(launches):
    rng, held = np.random.default_rng(5), []
    for _ in range(500):
        slow = rng.random((2, launches)) < 0.5
        logs = STATES * (slow - 0.5) + 0.004 * rng.standard_normal((2, launches))
        held.append(np.abs(logs.mean(axis=1)) <= half_widths(logs))

    assert np.mean(held) >= 0.9


def test_a_trial_that_spreads_more_than_the_other_keeps_its_own_interval():
    logs = np.array([[-0.2, 0.0, 0.2], [-0.01, 0.0, 0.01]])

    own, quiet = half_widths(logs)

    assert own == pytest.approx(half_width_between(logs)[0])
    assert quiet > 3 * half_width_between(logs)[1]


def test_six_launches_of_a_trial_show_its_own_spread():
    logs = np.array([[-0.2, 0.2] * 3, [-0.01, 0.01] * 3])

    assert least_half_widths(launches_of(logs), LEVEL) == {}


def test_one_trial_and_launches_that_are_alone_say_nothing():
    assert least_half_widths(launches_of([[-0.1, 0.0, 0.1]]), LEVEL) == {}
    assert least_half_widths(launches_of([[-0.1], [0.1]]), LEVEL) == {}


def test_a_report_widens_the_step_of_a_trial_whose_launches_saw_one_state(tmp_path):
    store = a_store(tmp_path / "results")
    trials = [a_trial(framework="pytorch", strategy=name, workers=2) for name in ("allreduce", "fsdp")]
    for trial, steps in zip(trials, ((0.1, 0.1, 0.1001), (0.1, 0.105, 0.1)), strict=True):
        store.add_trial(trial)
        for number, step in enumerate(steps):
            store.append(a_launch(trial, number, [step] * 20))

    found = {each.strategy: each.step_time_s for each in summarise(store).trials}

    assert found["allreduce"].high / found["allreduce"].low > 1.05
