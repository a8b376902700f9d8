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


@pytest.fixture
def fed_by_ray(capsys):
    """Two workers of a ``TorchTrainer`` that Ray Data feeds by ``iter_torch_batches``, on a busy machine.

    A task sleeps 20 ms for each block. By the workers' own clocks, waits for batches had a mean of 23.5 ms in rank 0
    and of 41.6 ms in rank 1, and each trained on 321 samples/s; tasks that read and mapped are on no record.
    """
    assert run_program(["report", str(RECORDS.with_name("ray-data.tar.xz")), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["attached"]


def test_workers_of_ray_data_are_no_trainings(fed_by_ray):
    assert [(rank["rank"], rank["steps"]) for rank in fed_by_ray["ranks"]] == [(0, 99), (1, 99)]


def test_a_wait_for_a_batch_of_ray_data_is_input_wait(fed_by_ray):
    (part,) = (part for part in fed_by_ray["parts"] if part["name"] == "input_wait")
    assert part["ranks_s"] == pytest.approx([0.0235, 0.0416], rel=0.02)


def test_batches_of_ray_data_are_counted(fed_by_ray):
    assert fed_by_ray["throughput"]["samples"]["per_step"] == 32
    assert fed_by_ray["throughput"]["samples"]["per_s"]["value"] == pytest.approx(2 * 321, rel=0.02)
