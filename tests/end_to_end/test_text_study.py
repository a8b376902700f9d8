"""A user's own text, from the study file to a training that is validated, and what is said of bad text."""

import json
import math
from pathlib import Path

import pytest
from program import steptime

STUDY = """\
workloads: {name: gpt2_tiny, dataset: ./corpus, sequence: 8, batch_per_worker: 4}
frameworks: reference
strategies: single
workers: 1
launcher: inline
equivalence: {enabled: false}
train: {epochs: 1, seeds: 1}
"""
TEXT = "the same words again and again, " * 20
TOKENS = len(TEXT) + 1


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text(TEXT)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def test_text_is_trained_on_and_its_last_fifth_validates(place: Path) -> None:
    steptime("run", "study.yaml", cwd=place, STEPTIME_CACHE=str(place / "cache"))

    (trial,) = (place / "steptime-results/study/trials").iterdir()
    (training,) = [json.loads(line) for line in (trial / "training.jsonl").read_text().splitlines()]
    ((epoch,),) = training["epochs"]
    held_out = TOKENS - round(0.8 * TOKENS)
    assert epoch["counted"] == (held_out - 1) // 8 * 8
    assert epoch["samples"] == (round(0.8 * TOKENS) - 1) // 8 // 4 * 4
    assert 0.0 < epoch["loss_sum"] / epoch["counted"] < math.log(257)
    told = json.loads(steptime("report", "steptime-results/study", "--json", cwd=place).stdout)
    assert f"{TOKENS} tokens of a vocabulary of 257 in 1 document" in told["datasets"][0]["sentence"]


def test_bad_text_ends_with_its_files_and_no_traceback(place: Path) -> None:
    (place / "corpus" / "bad\x1b[31m.txt").write_bytes(b"\xff")
    (place / "corpus" / "empty.jsonl").touch()
    ended = steptime("run", "study.yaml", "--dry-run", cwd=place, check=2, STEPTIME_CACHE=str(place / "cache"))

    assert "Traceback" not in ended.stderr
    assert "\x1b" not in ended.stderr
    assert r"bad\x1b[31m.txt: is not UTF-8: byte 0xff at offset 0" in ended.stderr
    assert "empty.jsonl: is empty" in ended.stderr


@pytest.mark.costly
def test_launches_in_one_process_count_each_their_own_batches(place: Path) -> None:
    """Synthetic batches are drawn of no dataset, whatever the launch before them drew."""
    study = STUDY.replace("train: {epochs: 1, seeds: 1}", "loaders: [native, synthetic]")
    (place / "study.yaml").write_text(study)
    quick = ["seconds_per_launch=0.01", "steps={warmup: 1, min: 3, max: 5}", "launches={min: 2, max: 2}"]
    steptime("run", "study.yaml", *quick, "-o", "results", cwd=place, STEPTIME_CACHE=str(place / "cache"))

    for folder in (place / "results" / "trials").iterdir():
        loader = json.loads((folder / "trial.json").read_text())["loader"]
        launches = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
        drawn = [launch["workers"][0]["drawn"] for launch in launches]
        assert [each is None for each in drawn] == [loader == "synthetic"] * 2
