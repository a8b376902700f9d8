"""Trainings of a study in a folder that has some already."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from trials import trial

from steptime.plain_file import PlainFolder
from steptime.results.accuracy_records import TrainingRun, WorkerEpoch
from steptime.results.store import Store
from steptime.runner.training_runs import TrainingRuns, kept_epochs, training_schedule, unread_part
from steptime.runner.trial_runs import TrialInputs
from steptime.study.study import Study
from steptime.study.training import Training

TRIAL = trial("a").model_copy(update={"training": Training(epochs=1)})
STUDY = Study.model_validate(
    {"name": "trained", "workloads": ["mlp"], "frameworks": ["a"], "train": {"epochs": 1, "seeds": 2}}
)


def training(number: int, status: Literal["ok", "failed"]) -> TrainingRun:
    """Return a training of one epoch, or one that reached its time limit."""
    epoch = WorkerEpoch(1.0, 0.1, 0.0, 200, 50, 45, 25.0, 0.05, 0.4)
    return TrainingRun(
        trial=TRIAL.id,
        launch=number,
        seed=number,
        status=status,
        reason=None if status == "ok" else "it took longer than 4 h",
        started_at="2026-01-01T00:00:00" if status == "ok" else "2026-01-01T00:01:00",
        wall_s=2.0,
        environment={},
        noise={},
        steps_per_epoch=25,
        epochs=[[epoch]] if status == "ok" else [],
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "results", study_text="", study_json={"name": "trained"})
    made.add_trial(TRIAL)
    return made


def verdict(store: Store) -> str:
    """Return what the schedule of another run says of the trial."""
    runs = TrainingRuns(TrialInputs(store.path, {}, {}), {})
    return training_schedule(STUDY, [TRIAL], store, runs).verdict(TRIAL)


def test_a_training_that_reached_its_time_limit_twice_goes_on_with_the_next_run(store):
    for _ in range(2):
        store.append(training(0, "failed"))

    assert verdict(store) == "continue"


def test_a_trial_with_a_training_of_every_seed_needs_no_other(store):
    store.append(training(0, "failed"))
    for number in range(2):
        store.append(training(number, "ok"))

    assert verdict(store) == "settled"


PART = {
    "epoch": 0,
    "trained_s": 1.0,
    "evaluated_s": 0.1,
    "saved_s": 0.0,
    "samples": 200,
    "counted": 50,
    "correct": 45,
    "loss_sum": 25.0,
    "learning_rate": 0.05,
    "training_loss": 0.4,
    "staleness": None,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint behind one epoch of one worker, whose ``epochs.json`` is for the test to write."""
    folder = tmp_path / "checkpoint-0"
    folder.mkdir()
    np.savez(folder / "state-0-0.npz", weights=np.zeros(3))
    return folder


def test_a_training_goes_on_behind_the_epochs_of_its_checkpoint(checkpoint, tmp_path):
    (checkpoint / "epochs.json").write_text(json.dumps([[PART]]))

    assert len(kept_epochs(PlainFolder(tmp_path), checkpoint, 1)) == 1
    assert unread_part(PlainFolder(tmp_path), checkpoint, 1) is None


@pytest.mark.parametrize(
    "epochs",
    [
        *("null", "7", "{}", "[7]", "[[7]]", "[[]]", "[[{}]]", "[[null]]", '"x"', "[" * 10_000, "{", "\0"),
        *(json.dumps([[PART | change]]) for change in ({"trained_s": "x"}, {"samples": -1}, {"epoch": 3})),
        json.dumps([[PART | {"evaluated_s": None}]]),
        json.dumps([[PART], [PART]]),
        json.dumps([[PART, PART]]),
    ],
)
def test_a_checkpoint_of_another_form_is_named_and_its_training_begins_again(checkpoint, tmp_path, epochs):
    (checkpoint / "epochs.json").write_text(epochs)

    assert kept_epochs(PlainFolder(tmp_path), checkpoint, 1) == []
    assert "epochs.json is damaged" in unread_part(PlainFolder(tmp_path), checkpoint, 1)
