"""Trainings of a second or two whose process ends by `os._exit`, as workers do: their steps are on record."""

import json

import pytest
from warm_frameworks import warm_framework

pytestmark = pytest.mark.framework("pytorch")
SCRIPT = """
import os, time, torch

torch.set_num_threads(1)
net = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
moments = [time.monotonic_ns()]
while moments[-1] < moments[0] + SECONDS * 1e9:
    net(torch.ones(8, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
    moments.append(time.monotonic_ns())
print(moments[-1], max(later - earlier for earlier, later in zip(moments, moments[1:])), flush=True)
os._exit(0)
"""
WAIT_NS = 250_000_000
"""For which a line waits in the first seconds of a training."""


@pytest.mark.parametrize("seconds", [0.5, 1, 2])
def test_no_more_than_the_last_quarter_second_is_lost(tmp_path, seconds):
    (tmp_path / "script.py").write_text(SCRIPT.replace("SECONDS", str(seconds)))
    printed = warm_framework("pytorch", attached=True).run_attached(tmp_path, "script.py")
    (path,) = (tmp_path / "record").glob("*.jsonl")
    steps = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "step"]
    last, longest = map(int, printed.split())
    end = steps[-1]["begin_ns"] + steps[-1]["duration_ns"]
    assert last - end < WAIT_NS + 2 * longest
