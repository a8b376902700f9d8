"""The commands of docs/attach.md, from the first to the answer, find what makes the script of examples/ slow."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from launching import interpreter_for
from program import PROGRAM

ROOT = Path(__file__).parents[2]


def commands():
    """The commands of the first block of the page, without the making of an environment."""
    page = (ROOT / "docs" / "attach.md").read_text(encoding="utf-8")
    block = re.search(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for line in block[1].splitlines() if line.startswith("steptime ")]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "examples").symlink_to(ROOT / "examples")
    path = f"{interpreter_for('pytorch').parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
    return [
        subprocess.run(
            [*PROGRAM, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=True
        )
        for words in commands()
    ]


def test_the_answer_names_every_cause(done):
    answer = " ".join(done[0].stderr.split())
    assert "for its input" in answer
    assert "__getitem__" in answer
    assert "write_summary" in answer
    assert "rank 1)" in answer


def test_the_script_says_what_it_says_alone(done):
    assert re.fullmatch(r"loss \d\.\d{3}\n", done[0].stdout)


def test_the_report_reads_the_folder(done):
    assert "input wait" in done[1].stdout
    assert "slow.html" in done[1].stderr or "input" in done[1].stdout
