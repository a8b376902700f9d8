"""Two workers of Ray Train 2.60 that were attached by Ray's runtime environment, as they left their records.

A ``TorchTrainer`` with one worker on each of two raylets of one machine; rank 1 sleeps for 30 ms between its forward
and backward pass, and each printed 462 samples/s. Ray ends workers without leaving Python, so that the last of 64
steps are not on record. Where programs and sessions lie was replaced.
"""

import json
from pathlib import Path

import pytest

from steptime.cli.app import run_program

RECORDS = Path(__file__).parents[1] / "data" / "ray-train.tar.xz"


@pytest.fixture
def report(capsys):
    assert run_program(["report", str(RECORDS), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["attached"]


def test_the_steps_of_both_workers_are_on_record_but_for_the_last(report):
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    assert all(62 <= rank["steps"] <= 64 for rank in report["ranks"])


def test_the_worker_that_sleeps_is_the_one_that_the_other_waits_for(report):
    straggler = next(finding for finding in report["findings"] if finding["kind"] == "straggler")
    assert "for rank 1; it spends 30" in straggler["sentence"]


def test_samples_of_a_second_are_what_the_workers_printed(report):
    rate = report["throughput"]["samples"]["per_s"]
    assert rate["low"] < 2 * 462 < rate["high"]


def test_the_niceness_that_ray_gives_its_workers_is_named_with_the_variable_that_changes_it(report):
    assert "processes train at niceness 15" in report["notes"][0]
    assert "RAY_worker_niceness=0" in report["notes"][0]
