"""``steptime evidence``, as a user calls it."""

import json
import sys
from pathlib import Path

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


def test_a_table_without_held_out_rows_ends_with_the_remedy(tmp_path):
    result = CliRunner().invoke(app, ["evidence", str(write(tmp_path, ROWS[:3]))])
    assert isinstance(result.exception, UsageError)
    assert "steptime predict --curve" in str(result.exception)
