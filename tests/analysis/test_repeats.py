"""What is no repetition of a measurement does not count as one: copies, and equal numbers of blocks."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import a_launch, a_store, a_trial

from steptime.analysis.compared.change import change_between
from steptime.analysis.compared.sides import side_of
from steptime.analysis.summary import summarise
from steptime.errors import UsageError
from steptime.results.store import Store

TRIAL, OTHER, THIRD = a_trial(), a_trial(batch_per_worker=16), a_trial(batch_per_worker=32)


def launches(trial, step_s=0.1, *, count=3, first=0, block=None, hour=0):  # noqa: PLR0913 - what two runs differ in
    """Return launches whose steps differ by 2 %, each a minute after the one before."""
    rng = np.random.default_rng([first, hour, trial.batch_per_worker])
    return [
        a_launch(
            trial,
            first + number,
            [step_s * float(np.exp(rng.normal(0.0, 0.02)))] * 10,
            block=number if block is None else block,
            started_at=f"2026-01-01T{hour:02d}:{number:02d}:00+00:00",
        )
        for number in range(count)
    ]


def filled(folder, *groups):
    store = a_store(folder)
    for launch in (each for group in groups for each in group):
        store.add_trial(next(each for each in (TRIAL, OTHER, THIRD) if each.id == launch.trial))
        store.append(launch)
    return store


def interval(store):
    found = next(each for each in summarise(Store.open(store.path)).trials if each.id == TRIAL.id).step_time_s
    return found.low, found.high


@pytest.mark.parametrize(
    "changes",
    [
        {"launch": 7},
        {"launch": 7, "block": 7},
        {"launch": 7, "block": 7, "started_at": "2026-02-01T00:00:00+00:00"},
        {"launch": 7, "wall_s": 9.0, "commands": [["python"]]},
        {"started_at": "2026-01-01T00:00:30+00:00"},
    ],
    ids=" ".join,
)
def test_a_renumbered_copy_of_a_launch_does_not_count(tmp_path, changes):
    own = launches(TRIAL)
    store = filled(tmp_path / "a", own, [replace(own[1], **changes)])
    plain = filled(tmp_path / "b", own)

    assert interval(store) == interval(plain)
    (trial,) = summarise(store).trials
    assert trial.launches == 3
    assert "records set aside: 1 the same launch again" in trial.flags


def test_a_launch_that_was_copied_to_another_trial_counts_once(tmp_path):
    own = launches(TRIAL)
    store = filled(tmp_path, own, [replace(own[0], trial=OTHER.id), *launches(OTHER, first=1, count=2, hour=1)])

    assert sorted(each.launches for each in summarise(store).trials) == [2, 3]
    assert [each.reason for each in store.set_aside] == ["repeated"]
    assert "it is the launch of line 1 of reference-single-mlp" in store.problems[0]


def test_a_copied_folder_is_not_compared_with_itself(tmp_path):
    one, copy = (side_of(filled(tmp_path / name, launches(TRIAL)), name) for name in ("a", "b"))

    with pytest.raises(UsageError, match="3 of 3 launches left out: copies of launches of a"):
        change_between(one, copy)


def test_of_a_copied_folder_that_went_on_only_its_own_launches_count(tmp_path):
    one = side_of(filled(tmp_path / "a", launches(TRIAL)), "a")
    further = launches(TRIAL, first=3, count=4, hour=1)
    more = side_of(filled(tmp_path / "b", launches(TRIAL), further), "b")

    (trial,) = change_between(one, more).trials

    assert trial.launches == (3, 4)
    assert "3 of 7 launches left out: copies of launches of a" in trial.flags


@pytest.mark.parametrize("block", [None, 0], ids=["each run counts its blocks from 0", "all blocks are 0"])
def test_equal_numbers_of_blocks_of_two_runs_leave_no_launch_out(tmp_path, block):
    groups = [launches(TRIAL, 0.1, hour=0, block=block), launches(OTHER, 0.1, hour=0, block=block)]
    later = [launches(each, step_s, first=3, hour=5, block=block) for each, step_s in ((TRIAL, 0.1), (OTHER, 0.149))]
    side = side_of(filled(tmp_path, *groups, *later), "a", "batch_per_worker")

    (trial,) = change_between(side.where("batch_per_worker", "8"), side.where("batch_per_worker", "16")).trials

    assert trial.ratio.value == pytest.approx(np.sqrt(1.49), rel=0.03)
    assert trial.interleaved == 6
    assert trial.launches == (6, 6)


def test_launches_that_ran_hours_later_share_no_block_with_those_of_equal_numbers(tmp_path):
    """As those of a framework that is added to a study, whose blocks are numbered from 0 as well."""
    store = filled(tmp_path, launches(TRIAL), launches(OTHER), launches(THIRD, hour=5))
    blocks = {each.id: {launch.block for launch in each.launches} for each in side_of(store, "a").subjects}

    assert blocks[TRIAL.id] == blocks[OTHER.id] == {0, 1, 2}
    assert blocks[THIRD.id] == {3, 4, 5}


@pytest.mark.parametrize("trials", [(TRIAL,), (TRIAL, OTHER), (TRIAL, OTHER, THIRD)], ids=len)
def test_a_study_whose_blocks_are_all_0_has_intervals(tmp_path, trials):
    store = filled(tmp_path, *(launches(each, block=0) for each in trials))

    for each in summarise(store).trials:
        assert 0.0 < each.step_time_s.low < each.step_time_s.mean < each.step_time_s.high
