import pytest
from launch_phases import launch_of
from simulated import a_failure, a_launch, a_store, a_training, a_trial

from steptime.analysis.trial_progress import progress_of_trials
from steptime.results.ablation_records import AblationLaunch


def an_ablation_launch(**changes):
    return AblationLaunch(**{**vars(launch_of(0, workers=1)), "trial": a_trial().id, **changes})


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    for number in range(3):
        store.append(a_launch(a_trial(), number, [0.1, 0.3, 0.2]))
    return store


def status(store):
    (row,) = progress_of_trials(store)
    return row


def test_launches_and_steps_are_counted(store):
    assert (status(store)["ok"], status(store)["steps"], status(store)["reason"]) == (3, 9, None)


def test_a_failed_launch_is_counted_apart_with_its_reason(store):
    store.append(a_failure(a_trial(), 3))
    assert (status(store)["ok"], status(store)["failed"]) == (3, 1)
    assert status(store)["reason"] == "worker-0: ValueError: no"


def test_a_verdict_is_the_reason_before_any_failure(store):
    store.append(a_failure(a_trial(), 3))
    store.put("verdicts", {a_trial().id: {"status": "failed", "reason": "it does not fit in memory"}})
    assert status(store)["reason"] == "it does not fit in memory"


def test_new_launches_are_counted_at_once(store):
    progress_of_trials(store)
    store.append(a_launch(a_trial(), 3))
    assert status(store)["ok"] == 4


def test_a_half_written_line_is_counted_once_it_is_whole(store):
    records = store.path / "trials" / a_trial().id / "records.jsonl"
    whole = records.read_bytes()
    records.write_bytes(whole[:-10])
    assert status(store)["ok"] == 2
    records.write_bytes(whole)
    assert status(store)["ok"] == 3


def test_trainings_and_their_epochs_are_counted_apart(store):
    store.append(a_training(a_trial()))
    store.append(a_training(a_trial(), 1, status="failed", reason="no", epochs=[]))
    found = status(store)
    assert (found["ok"], found["trainings_ok"], found["trainings_failed"], found["epochs"]) == (3, 1, 1, 2)
    assert found["reason"] == "no"


def test_ablation_launches_are_counted_apart_from_timed_ones(store):
    store.append(an_ablation_launch())
    assert (status(store)["ok"], status(store)["steps"], status(store)["ablations_ok"]) == (3, 9, 1)


def test_a_failed_ablation_launch_says_why(store):
    store.append(an_ablation_launch(status="failed", reason="timed out", workers=[]))
    assert (status(store)["ablations_failed"], status(store)["reason"]) == (1, "timed out")


def test_asking_how_far_a_study_is_writes_nothing(store):
    before = sorted(store.path.rglob("*"))
    progress_of_trials(store)
    assert sorted(store.path.rglob("*")) == before
