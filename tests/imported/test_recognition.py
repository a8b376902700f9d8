"""Every sample is recognised as what it is, also where it has what other forms are known by."""

import json

import pytest
from logs import LOGS
from test_collective_records import dump, inspected
from test_traces import DEVICE, FORMS, trace
from test_tracker_histories import HISTORIES

from steptime.importers import recognised_runs

GROUPS = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [0, 1]}]
INFORMED = {"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": GROUPS, "pg_status": {}}
"""As newer versions of PyTorch write it into a trace."""
SAMPLES = {
    **{f"log: {name}": (name, log.encode()) for name, (log, _) in LOGS.items()},
    **{f"history: {name}": (name.split()[0], data) for name, data in HISTORIES.items()},
    **{f"trace: {name}": ("kineto", data) for name, data in FORMS.items()},
    "trace with process groups": ("kineto", trace(DEVICE, distributedInfo=INFORMED)),
    "trace with process groups behind its events": (
        "kineto", json.dumps({"traceEvents": DEVICE, "distributedInfo": INFORMED}).encode()
    ),
    "trace of a trainer": ("kineto", trace(DEVICE, user_metadata={"train_runtime": 1.5, "coll_exec_time_us": 1})),
    "flight recorder": ("flight-recorder", json.dumps(dump(40, 38)).encode()),
    "inspector": ("nccl-inspector", inspected(0, [1.0, 2.0]).encode()),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_recognised(name, tmp_path):
    form, data = SAMPLES[name]
    (tmp_path / "sample").write_bytes(data)
    assert [row.name for _, row in recognised_runs([tmp_path / "sample"])] == [form]
