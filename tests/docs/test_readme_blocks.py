"""The blocks of the README about one's own study run as printed, one after another, in an empty folder.

The measurement itself is not made here: the results of the recorded race take its place.
"""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.cli.report import STUDY, recorded_files

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", README)
WIDEST = 113
"""Letters of a line of a block that a browser shows on GitHub without a bar to scroll."""


def test_no_line_of_a_block_is_wider_than_what_github_shows():
    assert [line for _, text in BLOCKS for line in text.splitlines() if len(line) > WIDEST] == []


def test_the_first_block_installs():
    assert BLOCKS[0][1].startswith("make setup ")


def test_the_commands_about_a_study_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (study,) = (text for kind, text in BLOCKS if kind == "yaml")
    Path("buckets.yaml").write_text(study)
    for line in (line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()):
        program, verb, *arguments = shlex.split(line, comments=True) + [""] * 2
        if program != ".venv/bin/steptime" or verb in {"attach", ""}:
            continue
        if verb == "run" and "--dry-run" not in arguments:
            for name, data in recorded_files().items():
                path = Path("steptime-results", name.replace(STUDY, "buckets", 1))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            continue
        result = CliRunner().invoke(app, [verb, *filter(None, arguments)])
        if result.exit_code:
            pytest.fail(f"{line}\n{result.output}")
