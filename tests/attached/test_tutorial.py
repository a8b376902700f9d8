"""docs/tutorial.md, step by step: what makes the script slow is found, and its change is shown to gain."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from launching import interpreter_for
from program import PROGRAM

# Seven runs, each of which imports PyTorch twice.
pytestmark = [pytest.mark.further, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def commands():
    """Return the commands of the page, in its order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def change_script(folder):
    """Write the script with the change of the page."""
    before, after = re.search(r"^```diff\n-(.*?)\n\+(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL).groups()
    text = (ROOT / "examples" / "slow_script.py").read_text(encoding="utf-8")
    assert text.count(before) == 1
    (folder / "faster_script.py").write_text(text.replace(before, after), encoding="utf-8")


def without_numbers(line):
    """Return the words of ``line`` with # for each time and share, in whatever unit."""
    return " ".join(re.sub(r"(at most |up to )?\b\d[\d.]* (s|ms|µs|%)(?= |,|$)( \([^)]*\))?", "#", line).split())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "examples").symlink_to(ROOT / "examples")
    change_script(folder)
    path = f"{interpreter_for('pytorch').parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
    return [
        subprocess.run(
            [*PROGRAM, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=True
        )
        for words in [*commands(), ["steptime", "report", "slow", "--html", "slow.html"]]
    ]


@pytest.fixture(scope="module")
def answer(done):
    return " ".join(done[0].stderr.split())


def test_the_answer_names_every_cause(answer):
    assert "for its input" in answer
    assert "__getitem__" in answer
    assert "write_summary" in answer
    assert re.search(r"sync wait .* for rank 1\b", answer)


def test_the_answer_has_the_rows_of_the_page(done):
    """By their names, and by the words beside those that rank 1 makes long; the rest may vary on a busy machine."""
    shown = [without_numbers(line) for line in done[0].stderr.splitlines()]
    (recorded,) = re.findall(r"^```text\n(torchrun .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rows = [line for line in recorded.splitlines() if line.startswith("  ") and "…" not in line]
    assert len(rows) >= 4
    words = [without_numbers(row) if "rank 1" in row else without_numbers(row).partition("#")[0] for row in rows]
    assert [row for row in words if not any(line.startswith(row) for line in shown)] == []


def test_the_answer_ends_with_the_next_command(answer):
    assert answer.endswith("What to change: steptime advise slow")


def test_the_script_says_what_it_says_alone(done):
    assert re.fullmatch(r"loss \d\.\d{3}\n", done[0].stdout)


@pytest.mark.parametrize("finding", ["num_workers", "make rank 1 as quick as the others", "write_summary"])
def test_advice_names_each_change(done, finding):
    assert finding in " ".join(done[1].stdout.split()).replace("Make", "make")


def test_the_changed_script_is_measured_beside_the_prediction(done):
    shown = " ".join(done[2].stdout.split())

    number = r"(?:inconclusive \W*about )?([\d.]+)x"  # a busy machine may leave it open
    predicted, measured = re.search(
        f"predicted gain {number} .*?measured gain {number}", shown[shown.index("Verified") :]
    ).groups()
    assert 1.0 < float(predicted) < 2.0
    assert 1.0 < float(measured) < 4.0


def test_the_report_reads_the_folder(done):
    assert "input wait" in done[3].stdout
