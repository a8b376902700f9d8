"""A study with `train`, killed in the middle of a training and run again, from the command to the page."""

import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from program import DIGITS_STUDY, report, start, steptime, write_study

EPOCHS, SEEDS = 8, 2


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LeNet-5 of the reference on digits; the first run is killed behind an epoch of the first training."""
    folder = tmp_path_factory.mktemp("learning")
    train = f"loaders: native\nbatch_per_worker: 128\ntrain: {{epochs: {EPOCHS}, seeds: {SEEDS}}}\n"
    study = write_study(folder, DIGITS_STUDY + train)
    killed = start("run", study, "-o", "results", cwd=folder)
    deadline = time.monotonic() + 150
    while not list((folder / "results").glob("trials/*/**/epochs.json")):
        assert killed.poll() is None, killed.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    steptime("run", study, "-o", "results", cwd=folder)
    return folder / "results"


@pytest.fixture(scope="module")
def trainings(results: Path) -> list[dict]:
    """The records of all trainings."""
    (path,) = results.glob("trials/*/training.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_seed_is_trained_once_to_its_last_epoch(trainings: list[dict]) -> None:
    assert sorted(each["seed"] for each in trainings) == list(range(trainings[0]["seed"], trainings[0]["seed"] + SEEDS))
    assert [len(each["epochs"]) for each in trainings] == SEEDS * [EPOCHS]


def test_the_killed_training_went_on_from_its_checkpoint_and_the_other_one_began_at_its_beginning(
    trainings: list[dict],
) -> None:
    killed, other = (each["resumed_at"] for each in trainings)

    assert (0 < killed < EPOCHS, other) == (True, 0)


def test_no_checkpoint_is_left_of_a_training_that_ended(results: Path) -> None:
    assert list(results.glob("trials/*/**/state-*.npz")) == []


def test_the_report_has_what_the_trainings_reached(results: Path) -> None:
    found = report(results.parent, "results")

    ((place, trial),) = zip(found["accuracy"], found["trials"], strict=True)
    assert (place["rank"], place["trial"], trial["training"]["final_accuracy"]["seeds"]) == (1, trial["id"], SEEDS)
    assert trial["training"]["final_accuracy"]["value"] > 0.8


def test_the_table_is_on_the_page_and_in_the_terminal(results: Path) -> None:
    shown = " ".join(steptime("report", "--all", "results", cwd=results.parent).stdout.split())

    assert "What trainings reached" in (results / "report.html").read_text()
    assert f"{SEEDS} seeds" in shown


@dataclass(frozen=True)
class CutTraining:
    """A training that a budget ended midway: its folder, its study, what the run said and how many epochs it kept."""

    folder: Path
    study: str
    said: str
    epochs: int


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> CutTraining:
    """A training that no budget suffices for; no test may go on with it in its own folder, which all share."""
    folder = tmp_path_factory.mktemp("cut")
    study = write_study(folder, DIGITS_STUDY + "loaders: native\ntrain: {epochs: 100000, seeds: 1}\n")
    for seconds in (5, 10, 20, 40):  # an epoch takes longer on a busy machine
        said = steptime("run", study, "-o", "results", "--budget", f"{seconds}s", cwd=folder, check=4).stderr
        if kept(folder):
            break
    return CutTraining(folder, study, " ".join(said.split()), kept(folder))


def kept(folder: Path) -> int:
    """Return how many epochs the checkpoint of the only training has."""
    found = list(folder.glob("results/trials/*/checkpoint-0/epochs.json"))
    return len(json.loads(found[0].read_text())) if found else 0


@pytest.mark.costly
def test_a_budget_ends_a_training_midway_and_its_checkpoint_is_kept(cut: CutTraining) -> None:
    told = re.search(r"the budget ended (.+?): epoch (\d+) of 100000 is kept", cut.said)

    assert told, cut.said[-2000:]
    assert told[1] == "reference single, lenet5, 1 worker, sgd, constant, seed 0"
    assert int(told[2]) == cut.epochs > 0
    assert "the budget left out 1 trial; to continue: steptime run" in cut.said


@pytest.mark.costly
def test_a_training_that_a_budget_ended_is_no_failure(cut: CutTraining) -> None:
    assert list(cut.folder.glob("results/trials/*/training.jsonl")) == []
    (trial,) = report(cut.folder, "results")["trials"]
    assert "not finished: the budget is spent" in trial["reason"]


@pytest.mark.costly
def test_the_next_run_goes_on_from_the_checkpoint(cut: CutTraining, tmp_path: Path) -> None:
    folder = shutil.copytree(cut.folder, tmp_path / "copy")
    steptime("run", cut.study, "-o", "results", "--budget", "30s", cwd=folder, check=4)
    (job,) = folder.glob("results/trials/*/training-0/job.json")

    assert json.loads(job.read_text())["training"]["first_epoch"] == cut.epochs
