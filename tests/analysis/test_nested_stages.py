"""Phases are not negative and sum to the step; a stage that contradicts them beyond chance leaves them undecided."""

import numpy as np
import pytest
from launch_phases import STAGES, launch_of
from simulated import a_trial

from steptime.analysis.ablation.breakdown import break_down, within_step
from steptime.analysis.ablation.form import Phase
from steptime.analysis.ablation.nested_stages import nested_phases
from steptime.analysis.ablation.stages import stage_times_of

PAIR = a_trial(strategy="allreduce", workers=2)


def broken_down(noise, stages=STAGES, launches=3, seed=0, **more):
    made = [launch_of(launches * seed + index, noise=noise, stages=stages, **more) for index in range(launches)]
    found = break_down(PAIR, made, [])
    assert found is not None
    return found


def known(found):
    return [phase for phase in found.phases.values() if phase]


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_no_phase_and_no_bound_is_negative_and_phases_sum_to_the_step(noise, seed):
    found = broken_down(noise, seed=seed, steps=2, blocks=4)
    assert all(phase.value_s >= 0.0 and phase.low_s >= 0.0 for phase in known(found))
    assert sum(phase.value_s for phase in known(found)) == pytest.approx(found.step_s.value_s)


@pytest.mark.parametrize("name", ["forward", "backward", "local", "exchange", "step"])
def test_a_stage_that_adds_nothing_has_an_interval_that_touches_0(name):
    stages = {**STAGES, name: 0.0 if name != "forward" else 1e-4}
    phase = {"local": "update", "exchange": "comm_exposed", "step": "input_wait"}.get(name, name)
    lows = [broken_down(0.02, stages, seed=seed).phases[phase] for seed in range(10)]
    assert sum(each.low_s <= stages[name] <= each.high_s for each in lows if each) >= 9


@pytest.mark.parametrize("phase", ["forward", "backward", "update", "input_wait"])
def test_intervals_hold_planted_phases(phase):
    """200 breakdowns of two launches; 95 % within four standard errors."""
    true_s = STAGES[{"update": "local", "input_wait": "step"}.get(phase, phase)]
    found = [broken_down(0.05, launches=2, seed=seed, blocks=6, pauses=(0, 0)).phases[phase] for seed in range(200)]
    assert 0.89 <= np.mean([each.low_s <= true_s <= each.high_s for each in found if each]) <= 1.0


def test_what_chance_makes_negative_comes_from_the_phases_beside_it():
    """The exchange is 1 ms too long, in which the loader adds nothing: both stages take their mean."""
    stages = {**STAGES, "exchange": STAGES["exchange"] + 0.0003, "step": -0.0003}
    phases = broken_down(0.0, stages).phases
    assert phases["input_wait"].value_s == 0.0
    assert phases["comm_exposed"].value_s == pytest.approx(STAGES["exchange"])
    assert phases["backward"].value_s == pytest.approx(STAGES["backward"])


@pytest.mark.parametrize(
    ("stage", "phases"),
    [
        ("step", ["comm_exposed", "input_wait"]),
        ("exchange", ["update", "comm_exposed", "input_wait"]),
        ("local", ["backward", "update", "comm_exposed"]),
    ],
)
def test_a_stage_that_is_shorter_with_more_work_leaves_its_phases_undecided(stage, phases):
    found = broken_down(0.001, {**STAGES, stage: -0.004})
    assert found.undecided == phases
    assert [name for name, phase in found.phases.items() if phase is None] == sorted(
        phases, key=list(found.phases).index
    )
    assert found.more_launches > 0


def test_more_launches_are_needed_where_launches_contradict_more():
    counts = [broken_down(0.001, {**STAGES, "step": -size}).more_launches for size in (0.002, 0.004, 0.008)]
    assert counts == sorted(set(counts))


def test_a_clear_breakdown_moves_nothing():
    launches = stage_times_of([launch_of(seed, noise=0.001) for seed in range(3)])
    nested = nested_phases(launches, synchronous=True, workers=2, cuda=False)
    added = [each.means("step") - each.means("exchange") for each in launches]
    assert nested.undecided == ()
    for one, raw in zip(nested.launches, added, strict=True):
        assert one["input_wait"] == pytest.approx(raw)


def test_accounts_that_have_too_much_together_give_it_up_where_they_are_known_least():
    phases = {
        "forward": Phase(value_s=0.6, low_s=0.59, high_s=0.61, how="derived"),
        "backward": Phase(value_s=0.5, low_s=0.2, high_s=0.8, how="derived"),
        "update": None,
    }
    found = within_step(phases, 1.0)
    assert sum(phase.value_s for phase in found.values() if phase) == pytest.approx(1.0)
    assert found["forward"].value_s == pytest.approx(0.6, abs=0.001)
    assert found["update"] is None
