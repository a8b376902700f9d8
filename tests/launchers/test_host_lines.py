"""Lines to hosts: who is taken for dead, and when."""

import sys
import time

import pytest

from steptime.errors import LaunchError
from steptime.launchers.hosts import probe
from steptime.launchers.hosts.commands import FAR_END
from steptime.launchers.hosts.lines import Lines

_ONE_OF_TWO_LIVES = """
import json, sys, time
for host in (0, 1):
    print(json.dumps({"host": host, "ready": {}}), flush=True)
while True:
    print(json.dumps({"host": 0}), flush=True)
    time.sleep(0.1)
"""


def test_a_host_that_falls_silent_is_dead_though_its_line_also_leads_to_another_that_lives(tmp_path):
    command = [sys.executable, "-c", _ONE_OF_TWO_LIVES]
    with Lines({"srun": command}, ["n0", "n1"], tmp_path) as lines:
        lines.gather("ready", 10.0)
        started = time.monotonic()
        with pytest.raises(LaunchError, match=r"^n1 has not been heard for 1 s"):
            lines.gather("look", 60.0, silence_s=1.0)
    assert time.monotonic() - started < 10.0


def test_a_host_that_falls_silent_while_clocks_are_compared_is_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_LOST_S", 1.0)
    with Lines({"srun": [sys.executable, "-c", _ONE_OF_TWO_LIVES]}, ["n0", "n1"], tmp_path) as lines:
        lines.gather("ready", 10.0)
        with pytest.raises(LaunchError, match=r"^n1 has not been heard for 1 s"):
            probe._clock_offsets(lines, 2)


def test_a_host_that_waits_for_a_file_says_that_it_lives(tmp_path):
    wanted = tmp_path / "shown"
    look = {"file": str(wanted), "text": "shown", "interpreter": sys.executable, "limit_s": 30.0}
    with Lines({"host-n0": [sys.executable, "-I", "-S", FAR_END, "0"]}, ["n0"], tmp_path) as lines:
        lines.send(plan={"hosts": ["n0"], "folder": str(tmp_path), "silence_s": 60.0, "probe": True, "stripped": []})
        lines.gather("ready", 30.0)
        lines.send(look=look)
        with pytest.raises(LaunchError, match=r"^n0 did not answer within 4 s"):  # and not that it was not heard
            lines.gather("look", 4.0, silence_s=2.5)
        wanted.write_text("shown")
        assert lines.gather("look", 30.0, silence_s=10.0)[0]["look"]["seen_s"] > 3.0


def test_a_far_end_that_waits_for_its_plan_is_not_yet_heard_as_a_host(tmp_path):
    command = [sys.executable, "-c", "import time; print('{\"host\": null}', flush=True); time.sleep(60)"]
    with (
        Lines({"srun": command}, ["n0"], tmp_path) as lines,
        pytest.raises(LaunchError, match=r"^n0 has not been heard"),
    ):
        lines.gather("ready", 30.0, silence_s=2.0)
