"""Trainings of a second or two whose process ends by `os._exit`, as workers do: their steps are on record."""

import json
import os
import subprocess

import pytest
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook

pytestmark = pytest.mark.framework("pytorch")
SCRIPT = """
import os, sys, time, torch

torch.set_num_threads(1)
net = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
moments = [time.monotonic_ns()]
while moments[-1] < moments[0] + float(sys.argv[1]) * 1e9:
    net(torch.ones(8, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)
    moments.append(time.monotonic_ns())
print(moments[-1], max(later - earlier for earlier, later in zip(moments, moments[1:])), flush=True)
os._exit(0)
"""
WAIT_NS = 250_000_000
"""For which a line waits in the first seconds of a training."""


@pytest.mark.parametrize("seconds", [0.5, 1, 2])
def test_no_more_than_the_last_quarter_second_is_lost(tmp_path, seconds):
    (tmp_path / "script.py").write_text(SCRIPT)
    hook = environment(write_hook(tmp_path / "hook"), tmp_path / "record", lines=False, flops=False)
    words = [interpreter_for("pytorch"), "script.py", str(seconds)]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, **hook}, capture_output=True, text=True, check=True)
    (path,) = (tmp_path / "record").glob("*.jsonl")
    steps = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "step"]
    last, longest = map(int, done.stdout.split())
    end = steps[-1]["begin_ns"] + steps[-1]["duration_ns"]
    assert last - end < WAIT_NS + 3 * longest
