"""What frameworks say themselves, compared with the ablation."""

import json
from dataclasses import replace

import numpy as np
import pytest
from launch_phases import STAGES, launch_of
from simulated import a_trial

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import Account
from steptime.results.ablation_records import AblationLaunch, read_ablation
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store

TRUE = {"forward": STAGES["forward"], "backward": STAGES["backward"], "comm_exposed + sync_wait": STAGES["exchange"]}
STEP_S = sum(STAGES.values())
MARKS = ["input", "forward", "backward", "exchange", "update"]
BLOCKS = 12


def telling(seed: int, told: dict[str, float], *, spread: float = 0.01, blocks: int = BLOCKS) -> AblationLaunch:
    """A launch whose workers' own timers tell ``told``, with as much noise in each block as ``spread`` says."""
    rng = np.random.default_rng(1000 + seed)
    launch = launch_of(seed, blocks=blocks)
    workers = [
        replace(
            worker,
            native=[
                {"timers": {name: value * (1.0 + spread * rng.standard_normal()) for name, value in told.items()}}
                for _ in range(blocks)
            ],
        )
        for worker in launch.workers
    ]
    return replace(launch, workers=workers)


def marking(lasts: tuple[float, ...]) -> AblationLaunch:
    """A launch whose workers, each on a clock of its own, mark phases that last so long, three steps in each block."""
    launch = launch_of(0, blocks=2)
    marked = [[float(step), *(step + np.cumsum(lasts))] for step in range(6)]
    return replace(
        launch,
        workers=[
            replace(
                worker,
                marks=MARKS,
                marked=[[end + 1000.0 * worker.rank for end in step] for step in marked],
                stages={**worker.stages, "marked": [[STEP_S] * 3] * 2},
            )
            for worker in launch.workers
        ],
    )


def accounts(*launches: AblationLaunch) -> dict[tuple[str, str], Account]:
    """By source and phase."""
    found = break_down(a_trial(strategy="allreduce", workers=2), launches, [])
    assert found is not None
    return {(each.source, each.phase): each for each in found.accounts}


def three(told: dict[str, float]) -> dict[tuple[str, str], Account]:
    return accounts(*(telling(seed, told) for seed in range(3)))


@pytest.mark.parametrize("phase", TRUE)
def test_timers_that_say_what_the_ablation_says_agree(phase):
    assert three(TRUE)["timers", phase].agrees is True


@pytest.mark.parametrize("phase", TRUE)
def test_timers_that_are_off_by_a_tenth_of_the_step_do_not_agree(phase):
    assert three({**TRUE, phase: TRUE[phase] + 0.1 * STEP_S})["timers", phase].agrees is False


@pytest.mark.parametrize("sign", [1, -1])
def test_what_timers_are_off_by_lies_in_the_interval_of_the_difference(sign):
    off = sign * 0.1 * STEP_S
    difference = three({**TRUE, "backward": TRUE["backward"] + off})["timers", "backward"].difference_s
    assert difference.low < off < difference.high


def test_a_difference_of_a_hundredth_of_the_step_is_no_disagreement_however_narrow_its_interval():
    account = three({**TRUE, "forward": TRUE["forward"] + 0.01 * STEP_S})["timers", "forward"]
    assert account.difference_s.low > 0.0
    assert account.agrees is True


def test_a_duration_that_covers_two_phases_is_held_against_their_sum():
    launch, late = launch_of(0, slow={1: 1.5}), 0.25 * (STAGES["forward"] + STAGES["backward"] + STAGES["local"])
    told = [{"timers": {"comm_exposed + sync_wait": STAGES["exchange"] + late}}] * BLOCKS
    launch = replace(launch, workers=[replace(worker, native=told) for worker in launch.workers])
    account = accounts(launch)["timers", "comm_exposed + sync_wait"]
    assert account.by_ablation_s.value == pytest.approx(account.native_s.value, rel=0.05)


def test_both_accounts_have_their_interval():
    account = three(TRUE)["timers", "forward"]
    assert account.native_s.low < account.native_s.value < account.native_s.high
    assert account.by_ablation_s.low < account.by_ablation_s.value < account.by_ablation_s.high


def test_a_phase_that_the_ablation_does_not_have_is_given_and_compared_with_nothing():
    launch = telling(0, {"backward": 0.02})
    workers = [
        replace(each, stages={k: v for k, v in each.stages.items() if k != "forward"}) for each in launch.workers
    ]
    account = accounts(replace(launch, workers=workers))["timers", "backward"]
    assert (account.by_ablation_s, account.difference_s, account.agrees) == (None, None, None)
    assert account.native_s.value == pytest.approx(0.02, rel=0.02)


def test_timers_that_are_too_noisy_to_tell_neither_agree_nor_differ():
    account = accounts(*(telling(seed, TRUE, spread=0.5) for seed in range(3)))["timers", "backward"]
    assert account.difference_s.high - account.difference_s.low > 0.04 * STEP_S
    assert account.agrees is None


def test_a_single_block_agrees_with_nothing_and_contradicts_nothing():
    account = accounts(telling(0, TRUE, blocks=1))["timers", "forward"]
    assert account.agrees is None


def test_what_only_some_launches_tell_is_left_out():
    assert accounts(telling(0, TRUE), launch_of(1)) == {}


def test_what_only_some_blocks_tell_is_left_out():
    launch = telling(0, TRUE)
    workers = [replace(worker, native=[*worker.native[:-1], {}]) for worker in launch.workers]
    assert accounts(replace(launch, workers=workers)) == {}


def test_one_worker_that_tells_speaks_for_all():
    launch = telling(0, {"forward": 0.01}, spread=0.0)
    first, second = launch.workers
    account = accounts(replace(launch, workers=[first, replace(second, native=[{}] * BLOCKS)]))["timers", "forward"]
    assert account.native_s.value == pytest.approx(0.01)


def test_marks_are_an_account_of_their_own_and_need_no_common_clock():
    found = accounts(marking((0.001, 0.010, 0.020, 0.005, 0.002)))
    assert {phase: each.native_s.value for (_, phase), each in found.items()} == pytest.approx(
        {"input_wait": 0.001, "forward": 0.010, "backward": 0.020, "comm_exposed + sync_wait": 0.005, "update": 0.002}
    )
    assert {source for source, _ in found} == {"marks"}


def test_what_timers_said_comes_back_from_the_store(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={})
    trial = a_trial(strategy="allreduce", workers=2)
    store.add_trial(trial)
    launch = replace(telling(0, TRUE), trial=trial.id)
    store.append(launch)
    assert store.records(ABLATION, trial.id) == [launch]


def test_launches_from_before_timers_were_asked_can_still_be_read():
    data = launch_of(0).to_json()
    for worker in data["workers"]:
        del worker["native"]
    assert read_ablation(json.dumps(data).encode()) == launch_of(0)
