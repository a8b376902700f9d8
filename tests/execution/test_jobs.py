"""What crosses to the worker."""

import json

from trials import trial

from steptime.catalog.workloads.table import build_workload
from steptime.execution.jobs import (
    AblationSchedule,
    TimingSchedule,
    ablation_job,
    check_job,
    loader_job,
    replay_job,
    timing_job,
)
from steptime.worker.main import of_adapter

TRIAL = trial(
    "pytorch",
    strategy="allreduce",
    workload="alexnet",
    input_shape=(3, 64, 64),
    workers=2,
    options={"bucket_mb": 25.0},
)
WORKLOAD = build_workload("alexnet", (3, 64, 64), 10)


def rates(job):
    return {layer["attributes"]["rate"] for layer in job["workload"]["layers"] if layer["kind"] == "dropout"}


def test_a_job_is_json_and_nothing_else():
    job = timing_job(TRIAL, WORKLOAD, {"kind": "synthetic"}, TimingSchedule(5, 3.0, 10, 2000))
    assert json.loads(json.dumps(job)) == job


def test_dropout_is_on_in_timing_and_off_in_checks():
    assert rates(timing_job(TRIAL, WORKLOAD, {}, TimingSchedule(5, 3.0, 10, 2000))) == {0.5}
    assert rates(check_job(TRIAL, WORKLOAD, (1, 4))) == {0.0}


def test_a_check_has_a_batch_of_its_own_for_every_step():
    job = check_job(TRIAL, WORKLOAD, (1, 4))
    assert job["loader"] == {"kind": "synthetic", "distinct_batches": 5}


def test_kernels_are_searched_where_speed_counts_and_in_no_check_or_replay():
    """The search of cuDNN took 12.6 to 15.0 s of each process for ResNet-50 on an H100, and gained 7.5 % of a step."""
    jobs = {
        "time": timing_job(TRIAL, WORKLOAD, {}, TimingSchedule(5, 3.0, 10, 2000)),
        "ablation": ablation_job(TRIAL, WORKLOAD, {}, AblationSchedule(5, 3.0)),
        "check": check_job(TRIAL, WORKLOAD, (1, 4)),
        "replay": replay_job(TRIAL, WORKLOAD, {}, [1, 4]),
        "loader": loader_job(TRIAL, WORKLOAD, {}, 1.0),
    }
    on_device = {mode: of_adapter({**job, "device": "cuda"}) for mode, job in jobs.items()}
    assert [mode for mode, job in on_device.items() if job["searches"]] == ["time", "ablation"]


def test_on_processors_a_job_does_not_show_whether_kernels_are_searched():
    assert "searches" not in of_adapter(timing_job(TRIAL, WORKLOAD, {}, TimingSchedule(5, 3.0, 10, 2000)))
