"""Which trial is launched next."""

import pytest
from trials import trial

from steptime.measurements.records import Launch
from steptime.runner.schedule import Schedule
from steptime.study.trial import Trial

TRIALS = [trial(name) for name in ("a", "b", "c", "d")]


def launch(of: Trial, number: int, status: str = "ok", wall_s: float = 1.0) -> Launch:
    return Launch(of.id, number, number, status, None, "2026-01-01T00:00:00", wall_s, [], {}, {})


def schedule(suffices=lambda _trial, _launches: False, launches=None, **fields) -> Schedule:
    settings = {"min_launches": 2, "max_launches": 3, "seed": 0}
    return Schedule(TRIALS, suffices, **{**settings, **fields}, launches=launches or {})


def play(plan: Schedule, status=lambda _trial: "ok", limit: int = 100) -> list[list[str]]:
    blocks = []
    for _ in range(limit):
        block, trials = plan.next_block()
        if not trials:
            return blocks
        blocks.append([each.framework for each in trials])
        for each in trials:
            plan.add(launch(each, block, status(each)))
    pytest.fail("the schedule never ends")


def test_every_block_launches_every_unsettled_trial_once():
    blocks = play(schedule())
    assert [sorted(block) for block in blocks] == [["a", "b", "c", "d"]] * 3


def test_blocks_are_in_different_orders():
    assert len({tuple(block) for block in play(schedule(max_launches=6))}) > 1


def test_the_same_seed_gives_the_same_order():
    assert play(schedule()) == play(schedule())


def test_a_trial_that_suffices_is_not_launched_beyond_its_minimum():
    blocks = play(schedule(lambda each, _launches: each.framework == "a"))
    assert [("a" in block) for block in blocks] == [True, True, False]


def test_a_resumed_study_finishes_the_interrupted_block_first():
    done = {each.id: [launch(each, 0)] for each in TRIALS[:2]}
    block, trials = schedule(launches=done).next_block()
    assert block == 0
    assert sorted(each.framework for each in trials) == ["c", "d"]


def test_a_resumed_study_repeats_nothing():
    done = {each.id: [launch(each, number) for number in range(3)] for each in TRIALS}
    assert schedule(launches=done).next_block() == (0, [])


def test_a_trial_that_fails_twice_is_given_up():
    blocks = play(schedule(max_launches=9), lambda each: "failed" if each.framework == "a" else "ok", limit=12)
    assert sum("a" in block for block in blocks) == 2


def test_a_trial_that_fails_once_gets_its_launches():
    plan = schedule(max_launches=4)
    plan.add(launch(TRIALS[0], 0, "failed"))
    assert sum("a" in block for block in play(plan)) == 3


def test_a_launch_is_expected_to_take_what_those_of_its_trial_took():
    plan = schedule()
    for number, wall_s in enumerate((10.0, 30.0, 12.0)):
        plan.add(launch(TRIALS[0], number, wall_s=wall_s))
    assert plan.expected_wall_s(TRIALS[0], guess_s=8.0) == 12.0


def test_a_trial_without_launches_is_expected_to_take_what_the_others_took_on_average():
    plan = schedule()
    assert plan.expected_wall_s(TRIALS[2], guess_s=8.0) == 8.0
    plan.add(launch(TRIALS[0], 0, wall_s=10.0))
    plan.add(launch(TRIALS[1], 0, wall_s=50.0))
    assert plan.expected_wall_s(TRIALS[2], guess_s=8.0) == 30.0
