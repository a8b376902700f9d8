"""What `make test` leaves out runs in `.ci/run`: no selection of its commands mentions the marks of `make test`."""

import os
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def selections(target: str) -> set[tuple[str, str]]:
    """Return the choice of frameworks and the expression of marks of each run of pytest that a target makes."""
    recipe = ["make", "--dry-run", "--no-print-directory", "--always-make", target]
    around = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(recipe, cwd=TESTS.parent, env=around, capture_output=True, text=True, check=True)
    runs = [line for line in done.stdout.splitlines() if " -m pytest " in line]
    return {(_word_behind(run, "--frameworks "), _word_behind(run.partition(" -m pytest ")[2], "-m ")) for run in runs}


def _word_behind(text: str, option: str) -> str:
    behind = text.partition(f" {option}")[2]
    return behind.split('"')[1] if behind.startswith('"') else behind.partition(" ")[0]


def test_a_merge_runs_every_test():
    """Of the default frameworks those that are not alone, of all those that are, and of the others all."""
    assert selections("test-all") == {("default", "not alone"), ("", "alone"), ("further", "")}
    assert "make test-ci\n" in (TESTS.parent / ".ci" / "run").read_text()


def test_a_developer_waits_for_neither_what_is_costly_nor_what_is_alone():
    assert selections("test") == {("default", "not alone and not costly")}


@pytest.mark.parametrize(
    ("code", "ends_well"),
    [(0, True), (1, False), (2, False), (3, True), (4, True), (130, False)],
    ids=["all", "not equivalent", "invalid", "without a framework", "budget spent", "Ctrl-C"],
)
def test_a_race_that_leaves_trials_out_is_no_error_of_make(code, ends_well):
    race = ["make", "--old-file=.venv/.core", "race", "VENV=.venv", f"STEPTIME=sh -c 'exit {code}'"]
    around = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(race, cwd=TESTS.parent, env=around, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is ends_well
    assert ("Error" in done.stderr) is not ends_well
