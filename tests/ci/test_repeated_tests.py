"""The end of a run names the tests that were repeated, by cause."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RUN = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", str(TESTS.parent / "pyproject.toml"), "-q"]
CRASHES_ONCE = """
from pathlib import Path

def test_a_crash():
    mark = Path(__file__).with_name("mark")
    if not mark.exists():
        mark.write_text("")
        raise AssertionError("worker 0 was ended by SIGSEGV")
"""
ALLOWED = ["--reruns", "1", "--only-rerun", "was ended by SIG", "--only-rerun", "still running; .* waits for a disk"]


def end_of_run(folder: Path, *options: str) -> str:
    """Return the text of a run of the tests in a folder, none of which may fail in the end."""
    done = subprocess.run(
        [*RUN, f"--rootdir={folder}", *options, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_a_repeated_test_is_counted_and_named_with_its_cause(processes, tmp_path):
    (tmp_path / "test_once.py").write_text(CRASHES_ONCE)
    lines = end_of_run(tmp_path, *processes, *ALLOWED).partition("= repeated tests =")[2].splitlines()

    assert [" ".join(line.split()) for line in lines[1:4]] == [
        "1 repeated because of: was ended by SIG",
        "test_once.py::test_a_crash",
        "0 repeated because of: still running; .* waits for a disk",
    ]


def test_a_run_that_repeats_nothing_says_nothing_of_it(tmp_path):
    (tmp_path / "test_once.py").write_text("def test_nothing():\n    pass\n")
    assert "repeated" not in end_of_run(tmp_path)
