"""``steptime attach --ablate``: a throw-away run shows what a step would take without a part of it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from forked_ranks import FORKED_RANKS
from launching import interpreter_for
from program import PROGRAM

LOOPS = Path(__file__).parents[2] / "benchmarks" / "attach" / "scripts" / "loops.py"
LOAD_S = 0.02
pytestmark = pytest.mark.framework("pytorch")


@pytest.fixture(scope="module")
def thrown_away(tmp_path_factory):
    """The folder, the end and the answer of an ablated run of two processes."""
    folder = tmp_path_factory.mktemp("ablation")
    python = interpreter_for("pytorch")
    command = [
        *PROGRAM,
        "attach",
        "--ablate",
        "--json",
        "-o",
        folder / "results",
        "--",
        python,
        FORKED_RANKS,
        LOOPS,
        "ddp",
    ]
    environ = {**os.environ, "STEPS": "300", "OUT": "out", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, command)), env=environ, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    return folder, done, json.loads(done.stderr.splitlines()[-1])


def test_the_script_is_ended_after_the_last_block_and_without_an_error(thrown_away):
    _, done, found = thrown_away
    assert (done.returncode, done.stdout) == (0, ""), done.stderr  # it would print its loss at its own end
    assert {rank["steps"] for rank in found["ranks"]} == {154}


def test_each_part_is_compared_by_pairs_of_blocks(thrown_away):
    sentences = [each["sentence"] for each in thrown_away[2]["findings"] if each["kind"] == "ablation"]
    assert [sentence.split(" a step takes ")[0] for sentence in sentences] == [
        "without its loader",
        "without DDP's exchange",
        "without its update",
    ]
    assert all("by 6 pairs of blocks" in sentence for sentence in sentences)


@pytest.fixture(scope="module")
def without_loader_s(thrown_away):
    sentence = next(each["sentence"] for each in thrown_away[2]["findings"] if "its loader" in each["sentence"])
    value, unit = re.search(r"takes ([0-9.]+) (ms|s)\b", sentence).groups()  # seconds on a busy machine
    return float(value) / {"ms": 1000, "s": 1}[unit]


@pytest.mark.alone
def test_without_its_loader_a_step_is_shorter(without_loader_s):
    assert without_loader_s > 0.5 * LOAD_S


@pytest.mark.alone
def test_it_is_shorter_by_what_the_loader_takes(without_loader_s):
    assert without_loader_s == pytest.approx(LOAD_S, rel=0.4)


def test_steps_that_lack_a_part_are_not_in_the_parts_of_a_step(thrown_away):
    found = thrown_away[2]
    (part,) = [part for part in found["parts"] if part["name"] == "input_wait"]
    assert part["time_s"]["value"] > 0.9 * LOAD_S
    assert found["left_out"] > 154 / 2


def test_the_run_works_in_a_folder_of_its_own_and_saves_nothing(thrown_away):
    folder, _, _ = thrown_away
    assert [path.name for path in folder.iterdir()] == ["results"]
    assert (folder / "results" / "thrown-away" / "out").is_dir()
    assert list(folder.rglob("*.pt")) == []
