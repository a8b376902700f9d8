"""What the records of a launch say beside their numbers."""

import json
import math
from pathlib import Path

import pytest

from steptime.runner.run_folder import collect


@pytest.mark.parametrize(("loss", "diverged"), [(0.5, False), (1e30, False), (math.nan, True), (math.inf, True)])
def test_a_loss_that_is_no_number_is_seen_on_whichever_worker_it_is(tmp_path: Path, loss: float, diverged: bool):
    for rank, value in enumerate((0.5, loss)):
        records = [{"kind": "warmup", "loss": 2.0}, {"kind": "steps", "loss": value}]
        (tmp_path / f"worker-{rank}.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert collect(tmp_path).diverged() is diverged


def test_a_launch_that_timed_nothing_did_not_diverge(tmp_path: Path):
    (tmp_path / "worker-0.jsonl").write_text('{"kind": "process", "pid": 1}')
    assert not collect(tmp_path).diverged()
