"""Evidence that is missing shows nothing: it costs the rank, or its absence is named in every form of a report."""

import json
from dataclasses import replace

import pytest
from simulated import a_check, a_launch, a_store, a_trial, a_worker
from test_replays import Replaying, replay

from steptime.analysis.summary import summarise
from steptime.report.conditions import notes
from steptime.results.records import Replay
from steptime.study.trial import Trial
from steptime.validity.training_evidence import mistake

TRIAL = a_trial()
CHECKED = {"equivalence": {"enabled": True}}
UNCHECKED = ()


def a_launch_to(last: int, number: int = 0, loss: float = 1.0, trial: Trial = TRIAL):
    """Return a launch that ends with step ``last``; 1 and 2 of them are of its warm-up."""
    ends = [0.1 * step for step in range(1, last - 2)]
    worker = replace(a_worker(ends), warmup_ends_s=[-0.2, -0.1], loss_first=None, loss_last=loss, losses=[(1, 2.0)])
    return a_launch(trial, number, workers=[replace(worker, samples=8)])


def a_replay_to(*last: int, reason: str | None = None, trial: Trial = TRIAL) -> Replay:
    steps = [1, *last]
    losses = [] if reason else [[2.0], *([1.0] for _ in last)]
    weights = [] if reason else [None for _ in steps]
    return Replay(trial.id, 1.0, steps, losses=losses, weights=weights, batches=[[]], reason=reason)


def summary_of(folder, launches, replays, checks=None, trial=TRIAL):
    store = a_store(folder / "results", **({} if checks == UNCHECKED else CHECKED))
    store.add_trial(trial)
    for check in [a_check(trials=[trial.id])] if checks is None else checks:
        store.append_equivalence(check)
    for launch in launches:
        store.append(launch)
    for each in replays:
        store.append_replay(each)
    return summarise(store)


def test_a_trial_whose_replay_failed_has_no_rank(tmp_path):
    found = summary_of(tmp_path, [a_launch_to(9)], [a_replay_to(9, reason="worker-0: RuntimeError: no")])

    assert found.trials[0].status == "unranked"
    assert (found.trials[0].reason or "").endswith("nothing shows what they did: worker-0: RuntimeError: no")
    assert not found.ranking


def test_a_replay_that_is_made_behind_one_that_failed_gives_the_rank_back(tmp_path):
    replays = [a_replay_to(9, reason="worker-0 was ended by SIGKILL"), a_replay_to(9)]

    (trial,) = summary_of(tmp_path, [a_launch_to(9)], replays).trials

    assert (trial.status, [flag for flag in trial.flags if "repeated" in flag]) == ("ok", [])


@pytest.mark.parametrize(
    ("replays", "without"), [([], 3), ([a_replay_to(9)], 2), ([a_replay_to(9, 12)], 1), ([a_replay_to(9, 12, 15)], 0)]
)
def test_launches_whose_replay_is_not_there_are_counted_in_a_flag(replays, without, tmp_path):
    launches = [a_launch_to(last, number) for number, last in enumerate((9, 12, 15))]

    (trial,) = summary_of(tmp_path, launches, replays).trials

    flags = [flag for flag in trial.flags if "repeated" in flag]
    wanted = f"timed steps not repeated: replays.jsonl has no replay of {without} of 3 launches; run the study again"
    assert flags == ([wanted] if without else [])
    assert json.loads(trial.model_dump_json())["flags"] == trial.flags
    assert all(any(flag in note for note in notes([trial])) for flag in flags)


def test_replays_of_several_runs_cover_the_launches_of_each(tmp_path):
    launches = [a_launch_to(last, number) for number, last in enumerate((9, 12))]

    (trial,) = summary_of(tmp_path, launches, [a_replay_to(9), a_replay_to(12)]).trials

    assert not [flag for flag in trial.flags if "repeated" in flag]


def test_launches_from_before_they_kept_evidence_are_named_as_such(tmp_path):
    (trial,) = summary_of(tmp_path, [a_launch(TRIAL)], []).trials

    assert "timed steps not repeated: its records are from before launches kept evidence of their training" in (
        trial.flags
    )


def test_a_study_without_the_check_asks_for_no_replay(tmp_path):
    (trial,) = summary_of(tmp_path, [a_launch_to(9)], [], UNCHECKED).trials

    assert (trial.status, [flag for flag in trial.flags if "repeated" in flag]) == ("ok", [])


@pytest.mark.parametrize(
    ("trial", "checks", "missing"),
    [
        (TRIAL, [], "equivalence.jsonl holds no check of this trial"),
        (
            a_trial(dataset="digits", loader="native"),
            [a_check(trials=[a_trial(dataset="digits", loader="native").id])],
            "equivalence.jsonl holds no check of the native loader of digits",
        ),
        (TRIAL, [a_check(trials=["another"])], "equivalence.jsonl holds no check of this trial"),
    ],
)
def test_a_check_that_is_gone_costs_the_rank(trial, checks, missing, tmp_path):
    (found,) = summary_of(tmp_path, [a_launch_to(9, trial=trial)], [a_replay_to(9, trial=trial)], checks, trial).trials

    assert (found.status, found.reason) == ("unranked", missing)


@pytest.mark.parametrize("wrong", range(4))
def test_the_end_of_every_launch_is_compared(wrong):
    launches = [a_launch_to(9 + each, each, loss=1.5 if each == wrong else 1.0) for each in range(4)]
    kept: list[Replay] = []
    replay(Replaying(), launches, [], kept.append, TRIAL)
    assert kept[0].steps == [1, 9, 10, 11, 12]

    assert f"after {9 + wrong} steps" in str(mistake(TRIAL, launches, [a_replay_to(9, 10, 11, 12)]))


def test_launches_of_a_later_run_are_replayed_to_their_own_ends():
    first, kept = a_launch_to(9), [a_replay_to(9)]
    executor = Replaying()

    replay(executor, [first, a_launch_to(12, 1)], list(kept), kept.append, TRIAL)

    assert kept[1].steps == [1, 9, 12]


def test_a_failed_replay_is_kept_with_its_reason():
    kept: list[Replay] = []
    executor = Replaying(fails="worker-0: RuntimeError: no")
    replay(executor, [a_launch_to(9)], [], kept.append, TRIAL)

    assert [(each.steps, each.reason) for each in kept] == [([1, 9], "worker-0: RuntimeError: no")]
    assert len(executor.rates) == 1


def test_a_replay_that_a_signal_ended_is_tried_once_more():
    kept: list[Replay] = []
    executor = Replaying(fails="worker-0 was ended by SIGSEGV")
    replay(executor, [a_launch_to(9)], [], kept.append, TRIAL)

    assert len(executor.rates) == 2
    assert kept[0].reason == "worker-0 was ended by SIGSEGV"
