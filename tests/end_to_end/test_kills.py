"""A small sample of benchmarks/faults/kills.py, which kills steptime at random moments and counts the losses."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "faults" / "kills.py"


def test_nothing_is_lost_and_nothing_is_left_when_steptime_is_killed():
    sample = ["--sigkill", "3", "--sigterm", "3", "--sighup", "3", "--scenarios", "net"]
    done = subprocess.run([sys.executable, PROGRAM, *sample], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert sum(found["kills"].values()) == 9
