"""``steptime evidence``, as a user calls it."""

import json
import re
import sys
from pathlib import Path

import pytest
from claims import further_digits, large_percentages, too_wide
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "curves"))

from tables import row, write

from steptime.cli.app import app
from steptime.errors import UsageError

ROWS = [row(1, 0.2), row(2, 0.21), row(4, 0.215), row(8, 0.22, "holdout"), row(16, 0.3, "holdout")]


def test_json_has_points_summary_and_nulls(tmp_path):
    result = CliRunner().invoke(app, ["evidence", str(write(tmp_path, ROWS)), "--json"])
    found = json.loads(result.stdout)
    keys = {"curve", "source", "workers", "measured_s", "predicted_s", "low_s", "high_s", "ape"}
    assert all(keys <= point.keys() for point in found["points"])
    assert set(found["summary"]) == {"all", "by_source", "by_class"}
    assert found["null_models"]["last"]["n"] == 2


def test_the_table_names_the_classes(tmp_path):
    result = CliRunner().invoke(app, ["evidence", str(write(tmp_path, ROWS))])
    assert result.exit_code == 0
    assert "first_step_out" in result.stdout


SHORTER = [row(1, 0.2), row(2, 0.4), row(4, 0.8), row(8, 0.1, "holdout")]
"""Whose last step models take for a much longer one."""


@pytest.mark.parametrize("rows", [ROWS, SHORTER], ids=["near", "far"])
def test_no_score_is_above_300_percent(tmp_path, rows):
    result = CliRunner().invoke(app, ["evidence", str(write(tmp_path, rows))])
    errors = re.findall(r"^ *(?:null|other): \w+ +\d+ +(\S+) +(\S+) +(\S+) +(\S+)", result.stdout, re.MULTILINE)

    assert len(errors) >= 8
    assert ("x" in "".join(map("".join, errors))) == (rows is SHORTER)
    assert max(abs(float(each)) for line in errors for each in line if not each.endswith("x")) <= 300.0
    assert not [*too_wide(result.stdout), *large_percentages(result.stdout), *further_digits(result.stdout)]


def test_a_table_without_held_out_rows_ends_with_the_remedy(tmp_path):
    result = CliRunner().invoke(app, ["evidence", str(write(tmp_path, ROWS[:3]))])
    assert isinstance(result.exception, UsageError)
    assert "steptime predict --curve" in str(result.exception)
