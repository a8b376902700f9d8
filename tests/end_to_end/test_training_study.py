"""A study with `train`, killed in the middle of a training and run again, from the command to the page."""

import json
import time
from pathlib import Path

import pytest
from program import report, start, steptime

EPOCHS, SEEDS = 8, 2


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LeNet-5 of the reference on digits; the first run is killed behind an epoch of the first training."""
    folder = tmp_path_factory.mktemp("learning")
    (folder / "study.yaml").write_text(
        "workloads: {name: lenet5, dataset: digits}\n"
        "frameworks: reference\n"
        "loaders: native\n"
        "batch_per_worker: 128\n"
        "equivalence: {enabled: false}\n"
        f"train: {{epochs: {EPOCHS}, seeds: {SEEDS}}}\n"
    )
    killed = start("run", "study.yaml", "-o", "results", cwd=folder)
    deadline = time.monotonic() + 150
    while not list((folder / "results").glob("trials/*/**/epochs.json")):
        assert killed.poll() is None, killed.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    steptime("run", "study.yaml", "-o", "results", cwd=folder)
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
    shown = " ".join(steptime("report", "results", cwd=results.parent).stdout.split())

    assert "What trainings reached" in (results / "report.html").read_text()
    assert f"{SEEDS} seeds" in shown
