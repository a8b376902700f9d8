import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from simulated import a_check, a_launch, a_store, a_trial, a_worker

from steptime.analysis.trial_progress import progress_of_trials
from steptime.errors import StoreError
from steptime.results.store import Store
from steptime.results.stored_record import SCHEMA


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "results")


def test_what_was_appended_is_read_back_equal(store):
    trial = a_trial()
    launches = [a_launch(trial, number, [0.1, 0.2 + number]) for number in range(3)]
    store.add_trial(trial)
    for launch in launches:
        store.append(launch)
    again = Store.open(store.path)
    assert again.trials() == [trial]
    assert again.launches(trial.id) == launches


def test_gate_results_are_read_back_equal(store):
    checks = [a_check(), a_check(workload="lenet5", passed=False, reason="the weights differ")]
    for check in checks:
        store.append_equivalence(check)
    assert Store.open(store.path).equivalence() == checks


def test_the_study_is_kept_word_by_word_and_with_its_defaults(store):
    assert store.study_text == "name: tried\n"
    assert Store.open(store.path).study_json == {"name": "tried", "question": ""}


def test_a_study_may_change_in_its_folder(store):
    store.set_study("name: grown\n", {"name": "grown"})
    assert Store.open(store.path).study_json == {"name": "grown"}


def test_a_trial_without_launches_has_none(store):
    store.add_trial(a_trial())
    assert store.launches(a_trial().id) == []


def test_adding_a_trial_again_changes_nothing(store):
    store.add_trial(a_trial())
    store.append(a_launch(a_trial()))
    store.add_trial(a_trial())
    assert len(store.launches(a_trial().id)) == 1


def test_a_launch_of_an_unknown_trial_is_a_mistake_of_the_caller(store):
    with pytest.raises(ValueError, match="add the trial first"):
        store.append(a_launch(a_trial()))


def test_objects_are_kept_by_name(store):
    store.put("skipped", {"skipped": []})
    assert Store.open(store.path).get("skipped") == {"skipped": []}
    assert store.get("verdicts") is None


@pytest.mark.parametrize("name", ["study", "machine", "../outside", "a/b", ""])
def test_an_object_cannot_take_the_place_of_another_file(store, name):
    with pytest.raises(ValueError, match="cannot hold"):
        store.put(name, {})


def test_records_are_standard_json_when_a_loss_is_not_a_number(store):
    trial = a_trial()
    worker = a_worker([1.0])
    diverged = type(worker)(**{**worker.__dict__, "loss_last": math.nan})
    store.add_trial(trial)
    store.append(a_launch(trial, workers=[diverged]))
    line = (store.path / "trials" / trial.id / "records.jsonl").read_text()
    read = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read["workers"][0]["loss_last"] is None


def test_an_existing_results_folder_is_not_made_anew(store):
    with pytest.raises(StoreError, match="already holds results"):
        Store.create(store.path, study_text="", study_json={})


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StoreError, match=r"thesis\.tex"):
        Store.create(tmp_path, study_text="", study_json={})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_without_a_study_is_no_results_folder(tmp_path):
    assert not Store.exists(tmp_path)
    with pytest.raises(StoreError, match=r"no study\.json"):
        Store.open(tmp_path)


def test_a_name_alone_leads_to_the_results_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").touch()
    (tmp_path / "steptime-results" / "two").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"did you mean 'steptime-results/two'\?$"):
        Store.open(Path("two"))


def test_a_newer_folder_is_refused_with_the_version_that_reads_it(store):
    path = store.path / "study.json"
    path.write_text(json.dumps({"schema": SCHEMA + 1, "written_by": "9.1.0", "study": {}}))
    with pytest.raises(StoreError, match=r"steptime 9\.1\.0 or newer"):
        Store.open(store.path)


def test_a_newer_line_is_refused_not_skipped(store):
    trial = a_trial()
    store.add_trial(trial)
    line = json.dumps({**a_launch(trial).to_json(), "schema": SCHEMA + 1})
    (store.path / "trials" / trial.id / "records.jsonl").write_text(line + "\n")
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}"):
        store.launches(trial.id)


def test_results_of_two_machines_do_not_mix(store):
    machine = {"cpu": "fast", "cores": 8, "gpus": [], "hostname": "a"}
    store.set_machine(machine)
    store.set_machine({**machine, "hostname": "b"})
    with pytest.raises(StoreError, match="another machine"):
        store.set_machine({**machine, "cores": 4})
    assert store.machine() == {**machine, "hostname": "b"}


def test_results_of_two_machines_of_one_kind_do_not_mix(store):
    machine = {"cpu": "fast", "cores": 8, "gpus": [], "hostname": "a"}
    store.set_machine({**machine, "id": "0123"})
    store.set_machine({**machine, "id": None})
    store.set_machine({**machine, "id": "0123"})
    with pytest.raises(StoreError, match="another machine \\(id: '0123', here '4567'\\)"):
        store.set_machine({**machine, "id": "4567"})


@pytest.mark.parametrize(
    ("machine", "site", "used"),
    [("4567", None, False), ("0123", None, True), (None, None, True), ("4567", ["n0", "n1"], True)],
)
def test_a_launch_of_another_machine_of_the_same_name_is_set_aside(store, machine, site, used):
    trial = a_trial()
    store.set_machine({"cpu": "fast", "cores": 8, "gpus": [], "id": "0123"})
    store.add_trial(trial)
    store.append(replace(a_launch(trial), machine=machine, site=site))

    assert len(store.launches(trial.id)) == used
    assert [each.reason for each in store.set_aside] == ([] if used else ["host"])


def test_status_counts_launches_and_steps(store):
    trial = a_trial()
    store.add_trial(trial)
    store.append(a_launch(trial, 0, [0.1] * 5))
    store.append(a_launch(trial, 1, status="failed", reason="no", workers=[]))
    (row,) = progress_of_trials(store)
    assert row == {
        "trial": trial.id,
        "tuning": "documented",
        "ok": 1,
        "failed": 1,
        "ablations_ok": 0,
        "trainings_ok": 0,
        "trainings_failed": 0,
        "epochs": 0,
        "ablations_failed": 0,
        "steps": 5,
        "last_launch_at": "2026-01-01T00:00:01.000+00:00",
        "reason": "no",
        "unverified": 0,
        "set_aside": [],
    }
