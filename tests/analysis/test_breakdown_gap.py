"""The gap between two trials' steps, phase by phase."""

import math

import pytest
from launch_phases import STAGES, launch_of
from simulated import a_trial

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import against_first, gap


def taken_apart(seed, *, launches=3, strategy="allreduce", stages=STAGES, **changes):
    made = [launch_of(seed + number, stages=stages, **changes) for number in range(launches)]
    return break_down(a_trial(workers=2, strategy=strategy), made, [0.04])


QUICK = taken_apart(0)
SLOW_LINK = taken_apart(10, stages={**STAGES, "exchange": 0.025})
BLIND = taken_apart(20, drop=("forward",))
CASES = {
    "a slow link": (QUICK, SLOW_LINK),
    "back again": (SLOW_LINK, QUICK),
    "an unknown phase": (QUICK, BLIND),
    "asynchronous": (QUICK, taken_apart(30, strategy="ps_async")),
    "one launch": (QUICK, taken_apart(40, launches=1)),
}


@pytest.mark.parametrize("pair", CASES.values(), ids=list(CASES))
def test_parts_sum_to_the_difference_of_the_steps(pair):
    one, other = pair
    found = gap("a", one, "b", other)
    assert found.step_s.value_s == pytest.approx(other.step_s.value_s - one.step_s.value_s)
    assert math.fsum(part.value_s for part in found.parts.values()) == pytest.approx(found.step_s.value_s, abs=1e-12)


def test_a_planted_difference_is_in_its_phase_and_within_its_interval():
    exposed = gap("a", QUICK, "b", SLOW_LINK).parts["comm_exposed"]
    assert exposed.low_s < 0.020 < exposed.high_s
    assert exposed.value_s == pytest.approx(0.020, rel=0.1)


def test_phases_without_a_difference_hold_none_in_their_interval():
    parts = gap("a", QUICK, "b", SLOW_LINK).parts
    assert all(parts[name].low_s <= 0.0 <= parts[name].high_s for name in ("forward", "backward", "update"))


def test_the_way_back_is_the_way_there_turned_round():
    there, back = gap("a", QUICK, "b", SLOW_LINK), gap("b", SLOW_LINK, "a", QUICK)
    for name, part in there.parts.items():
        assert part.value_s == pytest.approx(-back.parts[name].value_s, abs=1e-15)
        assert part.low_s == pytest.approx(-back.parts[name].high_s, abs=1e-15)


def test_a_trial_has_no_gap_to_itself():
    assert all(part.value_s == 0.0 for part in gap("a", QUICK, "a", QUICK).parts.values())


def test_a_phase_that_one_of_them_does_not_know_is_folded_into_the_rest():
    found = gap("a", QUICK, "b", BLIND)
    assert "forward" in found.folded
    assert "forward" not in found.parts


def test_a_phase_that_neither_knows_has_no_part():
    found = gap("a", BLIND, "b", BLIND)
    assert found.folded == []
    assert "forward" not in found.parts


def test_without_an_interval_of_one_the_difference_has_none():
    alone = taken_apart(50, launches=1, blocks=1)
    forward = gap("a", QUICK, "b", alone).parts["forward"]
    assert (forward.low_s, forward.high_s) == (None, None)


def test_every_trial_is_held_against_the_first_of_its_group():
    trials = [("g", "a", QUICK), ("h", "x", QUICK), ("g", "none", None), ("g", "b", BLIND), ("g", "c", SLOW_LINK)]
    assert [(found.first, found.second) for found in against_first(trials)] == [("a", "b"), ("a", "c")]
