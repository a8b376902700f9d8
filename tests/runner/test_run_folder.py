"""What the records of a launch say beside their numbers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from steptime.runner.run_folder import Collected, collect


@pytest.mark.parametrize(("loss", "diverged"), [(0.5, False), (1e30, False), (math.nan, True), (math.inf, True)])
def test_a_loss_that_is_no_number_is_seen_on_whichever_worker_it_is(tmp_path: Path, loss: float, diverged: bool):
    for rank, value in enumerate((0.5, loss)):
        records = [{"kind": "warmup", "loss": 2.0}, {"kind": "steps", "loss": value}]
        (tmp_path / f"worker-{rank}.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert collect(tmp_path).diverged() is diverged


def test_a_launch_that_timed_nothing_did_not_diverge(tmp_path: Path):
    (tmp_path / "worker-0.jsonl").write_text('{"kind": "process", "pid": 1}')
    assert not collect(tmp_path).diverged()


def test_the_first_error_is_that_of_the_right_time_where_the_clock_of_a_host_is_wrong():
    def failed(host: str, at_wall_s: float, message: str) -> dict[str, dict[str, Any]]:
        error = {"error": "OSError", "message": message, "at_s": 0.0, "at_wall_s": at_wall_s}
        return {"process": {"host": host}, "error": error}

    found = Collected({"worker-0": failed("n0", 1000.2, "peer gone"), "worker-1": failed("n1", 1300.0, "no memory")})

    assert found.first_error({"n0": 0.0, "n1": 300.0}) == "worker-1: OSError: no memory"
