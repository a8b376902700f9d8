"""The stored reports, from which the page of the report's keys has examples, are of the forms of today."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from reference_pages import report_examples, stored_reports

from steptime.analysis.summary_form import Summary
from steptime.attached.form import AttachedRun

REPORTS = ["counted", "models", "traced", "trainings", "twice", "two-ranks"]


def test_every_report_is_known_by_name():
    assert [name.removesuffix(".json") for name in stored_reports()] == REPORTS


@pytest.mark.parametrize("name", REPORTS)
def test_a_stored_report_has_no_key_that_reports_lack_today(name):
    report = json.loads(stored_reports()[f"{name}.json"])
    form, place = (AttachedRun, report["attached"]) if report.get("attached") else (Summary, report)
    known = {key.rstrip("_") for key in form.model_fields} | {"attached", "diagnosis", "net", "sweep"}

    assert set(place) <= known
    assert {key.rstrip("_") for key, field in form.model_fields.items() if field.is_required()} <= set(place)


def test_a_training_has_examples():
    examples = report_examples()

    assert examples["TrainingSummary", "epochs"] == "2"
    assert examples["AttachedTraining", "program"]
