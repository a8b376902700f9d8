"""Lines to hosts: who is taken for dead, and when."""

import signal
import sys
import time
from pathlib import Path

import pytest

from living_processes import living_children
from steptime.errors import LaunchError
from steptime.launchers.hosts import probe
from steptime.launchers.hosts.commands import HOST_AGENT
from steptime.launchers.hosts.connections import Lines

_ONE_OF_TWO_LIVES = """
import json, sys, time
for host in (0, 1):
    print(json.dumps({"host": host, "ready": {}}), flush=True)
while True:
    print(json.dumps({"host": 0}), flush=True)
    time.sleep(0.1)
"""


def plan(folder: Path, names: list[str], **more: object) -> dict[str, object]:
    """Return the plan of a launch without processes."""
    return {"hosts": names, "folder": str(folder), "silence_s": 60.0, "stripped": {"passed": []}, **more}


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
    look |= {"cache": None, "cache_file": None, "folders": [], "programs": []}
    with Lines({"host-n0": [sys.executable, "-I", "-S", HOST_AGENT, "0"]}, ["n0"], tmp_path) as lines:
        lines.send(
            plan={
                "hosts": ["n0"],
                "folder": str(tmp_path),
                "silence_s": 60.0,
                "probe": True,
                "stripped": {"passed": []},
            }
        )
        lines.gather("ready", 30.0)
        lines.send(look=look)
        with pytest.raises(LaunchError, match=r"^n0 did not answer within 4 s"):  # and not that it was not heard
            lines.gather("look", 4.0, silence_s=2.5)
        wanted.write_text("shown")
        assert lines.gather("look", 30.0, silence_s=10.0)[0]["look"]["seen_s"] > 3.0


_SAYS_ITS_MESSAGES = """
import json, sys
for line in sys.stdin:
    if line.strip():
        print(json.dumps({"host": int(sys.argv[1]), "took": json.loads(line)["text"][:9]}), flush=True)
"""
_NEVER_READS = """
import json, time
while True:
    print(json.dumps({"host": 0}), flush=True)
    time.sleep(0.1)
"""
MORE_THAN_A_PIPE_HOLDS = "x" * 300_000


def test_a_host_that_takes_no_message_is_dead_though_it_is_heard(tmp_path):
    with Lines({"host-n0": [sys.executable, "-c", _NEVER_READS]}, ["n0"], tmp_path) as lines:
        lines.send(text=MORE_THAN_A_PIPE_HOLDS)
        deadline = time.monotonic() + 30.0
        while (failure := lines.failure(2.0)) is None and time.monotonic() < deadline:
            lines.receive()
    assert failure == "n0 has taken no message for 2 s: the host or its link is dead"


def test_a_line_that_stands_still_holds_up_no_other(tmp_path):
    commands = {"host-n0": ["sleep", "600"], "host-n1": [sys.executable, "-c", _SAYS_ITS_MESSAGES, "1"]}
    with Lines(commands, ["n0", "n1"], tmp_path) as lines:
        (stopped,) = [each for each in living_children() if each.cmdline() == commands["host-n0"]]
        stopped.send_signal(signal.SIGSTOP)
        for _ in range(3):
            lines.send(text=MORE_THAN_A_PIPE_HOLDS)
        for _ in range(3):
            assert lines.gather("took", 30.0, [1])[1]["took"] == "x" * 9
        deadline = time.monotonic() + 30.0
        while (failure := lines.failure(5.0)) is None and time.monotonic() < deadline:
            lines.send(**{"for": 1, "text": "n1 is heard again"})
            lines.receive()
        assert failure is not None
        assert failure.startswith("n0 has ")
    assert not stopped.is_running()


def test_a_message_for_one_host_goes_to_the_line_of_that_host_alone(tmp_path):
    commands = {f"host-n{host}": [sys.executable, "-c", _SAYS_ITS_MESSAGES, str(host)] for host in (0, 1)}
    with Lines(commands, ["n0", "n1"], tmp_path) as lines:
        lines.send(**{"for": 1, "text": "for n1"})
        lines.send(text="for all")
        found = [lines.receive(30.0) for _ in range(3)]
    assert sorted((each["host"], each["took"]) for each in found if each) == [
        (0, "for all"),
        (1, "for all"),
        (1, "for n1"),
    ]


def test_a_host_is_known_by_its_short_name_where_hosts_are_named_with_their_domain(tmp_path):
    names = ["n0.example.org", "n1.example.org"]
    command = ["env", "SLURMD_NODENAME=n1", sys.executable, "-I", "-S", HOST_AGENT]
    with Lines({"srun": command}, names, tmp_path) as lines:
        lines.send(plan=plan(tmp_path, names))
        assert "boot" in lines.gather("ready", 30.0, [1])[1]["ready"]


@pytest.mark.parametrize("names", [["n0", "n1"], ["n7.a", "n7.b"]])
def test_a_host_that_has_none_of_the_names_is_refused_with_the_names(tmp_path, names):
    command = ["env", "SLURMD_NODENAME=n7", sys.executable, "-I", "-S", HOST_AGENT]
    with Lines({"srun": command}, names, tmp_path) as lines:
        lines.send(plan=plan(tmp_path, names))
        with pytest.raises(LaunchError, match=rf"^n7 is started as a host, and is none of {', '.join(names)}: "):
            lines.gather("ready", 30.0)


def test_a_host_agent_that_waits_for_its_plan_is_not_yet_heard_as_a_host(tmp_path):
    command = [sys.executable, "-c", "import time; print('{\"host\": null}', flush=True); time.sleep(60)"]
    with (
        Lines({"srun": command}, ["n0"], tmp_path) as lines,
        pytest.raises(LaunchError, match=r"^n0 has not been heard"),
    ):
        lines.gather("ready", 30.0, silence_s=2.0)
