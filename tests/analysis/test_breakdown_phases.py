"""Phases of steps whose true phases are known."""

from dataclasses import replace

import numpy as np
import pytest
from launch_phases import STAGES, launch_of
from simulated import a_trial

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import StepBreakdown
from steptime.analysis.ablation.stages import over_blocks
from steptime.phases import NAMES
from steptime.results.ablation_records import AblationLaunch

PAIR = a_trial(strategy="allreduce", workers=2)
ALONE = a_trial()
TRUE = {
    "forward": STAGES["forward"],
    "backward": STAGES["backward"],
    "update": STAGES["local"],
    "comm_exposed": STAGES["exchange"],
    "input_wait": STAGES["step"],
    "sync_wait": 0.0,
    "h2d": 0.0,
}


def taken_apart(launches: list[AblationLaunch], trial=PAIR) -> StepBreakdown:
    found = break_down(trial, launches, [])
    assert found is not None
    return found


def noiseless(**changes) -> StepBreakdown:
    return taken_apart([launch_of(seed, noise=0.0, **changes) for seed in range(3)])


@pytest.mark.parametrize("name", TRUE)
def test_without_noise_every_phase_is_what_its_stage_adds(name):
    assert noiseless().phases[name].value_s == pytest.approx(TRUE[name], abs=1e-12)


def test_phases_are_named_in_the_order_in_which_they_are_shown():
    assert tuple(noiseless().phases) == NAMES


@pytest.mark.parametrize("seed", range(5))
def test_phases_of_a_whole_ablation_close(seed):
    assert taken_apart([launch_of(3 * seed + index, noise=0.1) for index in range(3)]).closure_error < 1e-9


@pytest.mark.parametrize(
    ("stage", "phases"),
    [
        ("forward", {"forward", "backward"}),
        ("backward", {"backward", "update"}),
        ("local", {"update"}),
        ("exchange", {"comm_exposed", "input_wait"}),
    ],
)
def test_phases_that_a_missing_stage_would_tell_are_null(stage, phases):
    found = noiseless(drop=[stage])
    assert {name for name, phase in found.phases.items() if phase is None} == phases


def test_what_null_phases_hide_is_in_the_residual_and_in_the_closure():
    found = noiseless(drop=["exchange"])
    hidden = STAGES["exchange"] + STAGES["step"]
    assert found.phases["residual"].value_s == pytest.approx(hidden)
    assert found.closure_error == pytest.approx(hidden / sum(STAGES.values()))


def test_a_gap_that_no_interval_leaves_open_is_shown_whole():
    found = noiseless(drop=["exchange"])
    assert found.shown_closure_error() == pytest.approx(found.closure_error)


@pytest.mark.parametrize("half", [0.02, 0.1, 0.5])
def test_what_intervals_leave_open_is_not_shown_of_a_gap(half):
    found = noiseless(drop=["exchange"])
    wide = found.step_s.value_s * half
    step = found.step_s.model_copy(update={"low_s": found.step_s.low_s - wide, "high_s": found.step_s.high_s + wide})
    shown = found.model_copy(update={"step_s": step}).shown_closure_error()
    assert shown == pytest.approx(max(0.0, found.closure_error - half))


def test_one_worker_waits_for_nobody_and_says_so_directly():
    stages = {name: added for name, added in STAGES.items() if name != "exchange"}
    found = taken_apart([launch_of(seed, workers=1, stages=stages) for seed in range(2)], ALONE)
    for name in ("comm_exposed", "sync_wait", "h2d"):
        assert found.phases[name].value_s == 0.0
        assert found.phases[name].how == "direct"
    assert found.overlap is None
    assert found.imbalance is None


def test_copies_to_a_device_that_nobody_measured_are_null():
    found = taken_apart([launch_of(0, noise=0.0)], PAIR.model_copy(update={"device": "cuda"}))
    assert found.phases["h2d"] is None


def test_an_asynchronous_strategy_has_no_waiting_for_the_slowest():
    launches = [launch_of(seed, noise=0.0, slow={1: 2.0}) for seed in range(2)]
    found = taken_apart(launches, a_trial(strategy="ps_async", workers=2, servers=1, server_placement="own"))
    assert found.phases["sync_wait"].value_s == 0.0
    assert found.phases["sync_wait"].how == "direct"


def test_a_slow_worker_shows_as_waiting_of_the_mean_worker():
    found = noiseless(slow={1: 2.0})
    computed = STAGES["forward"] + STAGES["backward"] + STAGES["local"]
    assert found.phases["sync_wait"].value_s == pytest.approx(0.5 * computed)
    assert found.phases["comm_exposed"].value_s == pytest.approx(STAGES["exchange"])


def test_failed_launches_alone_give_no_breakdown():
    assert break_down(PAIR, [replace(launch_of(0), status="failed", workers=[])], []) is None


def test_a_single_launch_with_blocks_still_has_bounds():
    phase = taken_apart([launch_of(0)]).phases["forward"]
    assert phase.low_s < phase.value_s < phase.high_s


def test_the_step_is_compared_with_that_of_the_timing_runs():
    found = break_down(PAIR, [launch_of(seed, noise=0.0) for seed in range(3)], [sum(STAGES.values()) / 1.02] * 3)
    assert found.against_timing.value == pytest.approx(0.02)


def _coverage(between: float, runs: int = 600) -> float:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(runs):
        launches = [1.0 + between * rng.standard_normal() + 0.1 * rng.standard_normal(12) for _ in range(3)]
        found = over_blocks(launches)
        hits += found.low <= 1.0 <= found.high
    return hits / runs


def test_intervals_hold_the_truth_as_often_as_they_say_when_launches_are_alike():
    assert 0.93 <= _coverage(0.0) <= 0.99


@pytest.mark.parametrize("between", [0.02, 0.05, 0.1, 0.5])
def test_intervals_hold_the_truth_nearly_as_often_when_launches_differ(between):
    assert _coverage(between) >= 0.85


def test_launches_that_agree_give_a_narrower_interval_than_launches_that_do_not():
    rng = np.random.default_rng(3)
    noise = [0.1 * rng.standard_normal(12) for _ in range(3)]
    alike = over_blocks([1.0 + each for each in noise])
    apart = over_blocks([level + each for level, each in zip((0.5, 1.0, 1.5), noise, strict=True)])
    assert alike.high - alike.low < 0.2 * (apart.high - apart.low)


def test_one_block_of_one_launch_has_no_bounds():
    found = over_blocks([np.array([1.0])])
    assert (found.low, found.high) == (None, None)


def test_one_worker_that_goes_through_the_exchange_all_the_same_is_charged_for_it():
    found = taken_apart([launch_of(seed, workers=1, noise=0.0) for seed in range(2)], ALONE)
    assert found.phases["comm_exposed"].value_s == pytest.approx(STAGES["exchange"])
    assert found.phases["comm_exposed"].how == "derived"


def test_what_rounding_leaves_of_a_step_is_nothing():
    found = break_down(a_trial(workers=2, strategy="allreduce"), [launch_of(0), launch_of(1)], [])
    assert found.phases["residual"].value_s == 0.0
    assert found.closure_error == 0.0
