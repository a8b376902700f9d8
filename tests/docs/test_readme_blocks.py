"""Every block of the README runs as printed, one after another, in an empty folder; outputs are those of real runs.

What measures for minutes is planned here: the results of the recorded race take its place.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.cli.demo import STUDY, recorded_files

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", README)
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
ELSEWHERE = {
    "pip install '.[page]'": ".ci/try_wheel.py",  # installs packages: .ci/run does so in empty environments
    "steptime demo": "tests/cli/test_demo_verb.py",
    "steptime attach": "tests/attached/test_tutorial.py",  # trains in PyTorch's environment
}
"""What begins a command that takes long, and the file that runs it."""
WIDEST = 113
"""Letters of a line of a block that a browser shows on GitHub without a bar to scroll."""


def test_no_line_of_a_block_is_wider_than_what_github_shows():
    assert [line for _, text in BLOCKS for line in text.splitlines() if len(line) > WIDEST] == []


def test_the_first_block_installs():
    assert BLOCKS[0][1].startswith("pip install '.[page]' ")


def run_line(line):
    """Run a command as it is printed; measure nothing."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        recipe = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        words = shlex.split(recipe.splitlines()[-1].partition(" || ")[0])
    program, verb, *arguments = words
    assert program.removeprefix(".venv/bin/") == "steptime"
    if verb == "run" and "--dry-run" not in arguments:
        arguments.append("--dry-run")
        for name, data in recorded_files().items():
            path = Path("steptime-results", name.replace(STUDY, Path(arguments[0]).stem, 1))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    result = CliRunner().invoke(app, [verb, *arguments])
    if result.exit_code:
        pytest.fail(f"{line}\n{result.output}")


@pytest.mark.costly
def test_every_command_runs_as_printed_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, text in BLOCKS:
        if kind == "yaml":
            Path("buckets.yaml").write_text(text)
        for line in text.splitlines() if kind == "sh" else ():
            if not line.startswith(tuple(ELSEWHERE)):
                run_line(line)
    assert {"steptime-results", "buckets.html", "buckets.profile.json"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("command", ELSEWHERE)
def test_a_command_that_takes_long_is_run_elsewhere(command):
    assert sum(command in line for line in COMMANDS) == 1
    assert (ROOT / ELSEWHERE[command]).is_file()


def test_the_script_of_attach_is_run_with_the_command_of_the_tutorial():
    """Whose test runs it, into a folder of another name."""
    (command,) = (line for line in COMMANDS if " attach " in line)
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    assert command.replace("--lines", "--lines -o slow") in tutorial.splitlines()


def test_the_answer_of_attach_is_that_of_the_tutorial():
    (answer,) = (text for kind, text in BLOCKS if kind == "text" and "ranks on" in text)
    assert [line for line in answer.splitlines() if line not in (ROOT / "docs" / "tutorial.md").read_text()] == []


def test_every_row_of_the_race_is_one_of_the_linked_report():
    (table,) = (text for kind, text in BLOCKS if kind == "text" and "samples/s" in text)
    report = (ROOT / "benchmarks" / "studies" / "quickstart-one-tier.txt").read_text()
    rows = [line for line in table.splitlines() if re.match(r"\d=? ", line)]
    assert len(rows) == 4
    assert [row for row in rows if row not in report] == []
