"""A test that failed beside others passes where it does by itself, and is named; a fault is not hidden."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / ".ci" / "failed_again.py"
ONCE = """
from pathlib import Path

def test_once():
    mark = Path(__file__).with_name("mark")
    if not mark.exists():
        mark.write_text("")
        raise AssertionError
"""
ALWAYS = "def test_always():\n    raise AssertionError\n"


def fail_and_try_again(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a file, which fail, and then the program."""
    (folder / "test_file.py").write_text(tests)
    first = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=folder, capture_output=True, check=False)
    assert first.returncode == 1
    return subprocess.run([sys.executable, PROGRAM, "-q"], cwd=folder, capture_output=True, text=True, check=False)


def test_a_test_that_passes_by_itself_is_named(tmp_path):
    again = fail_and_try_again(tmp_path, ONCE)
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1].startswith("FAILED BESIDE OTHERS, passed alone;")
    assert again.stdout.splitlines()[-1].endswith("test_file.py::test_once")


@pytest.mark.parametrize("tests", [ALWAYS, ONCE + ALWAYS])
def test_a_test_that_fails_again_fails(tests, tmp_path):
    again = fail_and_try_again(tmp_path, tests)
    assert again.returncode == 1
    assert "passed alone" not in again.stdout


def test_many_failures_are_not_tried_again(tmp_path):
    again = fail_and_try_again(tmp_path, "\n".join(ALWAYS.replace("always", f"always_{number}") for number in range(4)))
    assert again.returncode == 1
    assert again.stdout == "4 tests failed; at most 3 are tried again by themselves\n"


def test_a_run_that_kept_no_failure_is_a_failure(tmp_path):
    again = subprocess.run([sys.executable, PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1


def test_what_pytest_keeps_names_the_tests(tmp_path):
    fail_and_try_again(tmp_path, ALWAYS)
    kept = json.loads((tmp_path / ".pytest_cache/v/cache/lastfailed").read_text())
    assert list(kept) == ["test_file.py::test_always"]
