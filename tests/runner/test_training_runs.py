"""Trainings of a study in a folder that has some already."""

from pathlib import Path
from typing import Literal

import pytest
from trials import trial

from steptime.measurements.accuracy.records import TrainingRun, WorkerEpoch
from steptime.measurements.store import Store
from steptime.runner.training_runs import TrainingRuns, training_schedule
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
