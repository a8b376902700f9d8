"""Exports for Extra-P, MLPerf's tools and Otava: what they read is what was measured."""

import json

import pytest
from ruamel.yaml import YAML
from simulated import a_launch, a_store, a_training, a_trial

from steptime.errors import StoreError
from steptime.exports.foreign_formats import export_extrap, export_mllog
from steptime.exports.otava import export_history
from steptime.study.training import Training

SECONDS = {1: 0.1, 2: 0.12}


@pytest.fixture
def timed(tmp_path):
    """A folder with step times of one and two workers, three launches each."""
    store = a_store(tmp_path / "timed")
    for workers, seconds in SECONDS.items():
        trial = a_trial(strategy="allreduce", workers=workers)
        store.add_trial(trial)
        for number in range(3):
            store.append(a_launch(trial, number, [seconds] * 10))
    return store


@pytest.fixture
def log(tmp_path):
    """The events of a training's log."""
    store = a_store(tmp_path / "trained")
    trial = a_trial(training=Training(epochs=2))
    store.add_trial(trial)
    store.append(a_training(trial))
    (path,) = export_mllog(store, tmp_path)
    lines = path.read_text().splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def test_extrap_gets_each_launch_with_its_parameters(timed, tmp_path):
    (path,) = export_extrap(timed, tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]

    assert [(row["params"]["workers"], pytest.approx(row["value"])) for row in rows] == [
        (workers, seconds) for workers, seconds in SECONDS.items() for _ in range(3)
    ]


def test_trials_of_one_curve_have_one_call_path(timed, tmp_path):
    (path,) = export_extrap(timed, tmp_path)

    assert len({json.loads(line)["callpath"] for line in path.read_text().splitlines()}) == 1


def test_mllog_has_a_start_and_a_stop_for_every_interval(log):
    started = [each["key"].removesuffix("_start") for each in log if each["event_type"] == "INTERVAL_START"]
    stopped = [each["key"].removesuffix("_stop") for each in log if each["event_type"] == "INTERVAL_END"]

    assert sorted(started) == sorted(stopped)


def test_mllog_tells_the_accuracy_behind_every_epoch(log):
    found = [(each["metadata"]["epoch_num"], each["value"]) for each in log if each["key"] == "eval_accuracy"]

    assert found == [(1, 0.9), (2, 0.9)]


def test_times_of_mllog_never_go_back(log):
    times = [each["time_ms"] for each in log]

    assert times == sorted(times)


def test_a_folder_without_trainings_has_no_log(timed, tmp_path):
    with pytest.raises(StoreError, match="no training"):
        export_mllog(timed, tmp_path)


def test_settings_of_otava_read_back_as_what_was_meant(timed, tmp_path):
    table, settings = export_history([timed, timed], tmp_path / "it's a: #folder")
    tests = YAML(typ="safe").load(settings.read_text())["tests"]

    assert set(tests) == {trial.id for trial in timed.trials()}
    assert {each["file"] for each in tests.values()} == {str(table.absolute())}
    assert {each["metrics"]["step_time_s"]["direction"] for each in tests.values()} == {-1}
