"""Looks at memory between steps: what they read, and that they become seldom."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from steptime.attach import memory
from steptime.attach.record_file import ProcessRecord
from steptime.attach.recorder import Recorder

SECOND = 1_000_000_000


@pytest.fixture
def looks(tmp_path):
    return memory.MemoryLooks(Recorder(ProcessRecord(str(tmp_path), "test")))


def lines_in(folder):
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()][1:]


def test_a_look_has_what_the_system_says_of_the_process(tmp_path, looks):
    looks.step_closed(1)
    (line,) = lines_in(tmp_path)
    assert line["step"] == 1
    assert 1 << 20 < line["resident"] <= line["peak"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert {"faults", "available"} <= line.keys()


def test_looks_become_seldom(tmp_path, looks, monkeypatch):
    at = SECOND
    for number in range(3600 * 4):
        at += SECOND // 4
        monkeypatch.setattr(memory, "now", lambda now=at: now)
        looks.step_closed(number)
    assert 300 < len(lines_in(tmp_path)) < 600  # of an hour


def test_a_forked_child_looks_by_itself(tmp_path, looks):
    looks.step_closed(1)
    looks.recorder.file.forked()
    looks.step_closed(2)
    lines = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(line["step"] for line in lines if line["kind"] == "memory") == [1, 2]


def test_what_groups_allow_counts_what_they_can_have_back(monkeypatch):
    files = {
        "/proc/self/cgroup": "0::/pod/job\n",
        "/sys/fs/cgroup/pod/memory.max": "1000\n",
        "/sys/fs/cgroup/pod/job/memory.max": "max\n",
        "/sys/fs/cgroup/pod/memory.current": "700\n",
        "/sys/fs/cgroup/pod/memory.stat": "anon 500\ninactive_file 150\n",
    }
    monkeypatch.setattr(memory, "read_text", lambda path: files.get(path, ""))
    (group,) = memory.limited_groups()
    assert memory._left(group) == 450


def test_groups_of_version_1_without_a_limit_do_not_count(monkeypatch):
    files = {
        "/proc/self/cgroup": "4:memory:/a\n1:cpu:/a\n",
        "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
    }
    monkeypatch.setattr(memory, "read_text", lambda path: files.get(path, ""))
    assert memory.limited_groups() == []


def cuda(*, started=True, capturing=False):
    counts = [{"allocated_bytes.all.peak": 12, "reserved_bytes.all.peak": 14}, {"reserved_bytes.all.peak": 0}]
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: started,
            is_current_stream_capturing=lambda: capturing,
            device_count=lambda: 2,
            memory_stats=lambda index: counts[index],
            get_device_properties=lambda _: SimpleNamespace(total_memory=80),
        )
    )


def test_devices_in_use_have_their_peaks():
    assert memory.devices(cuda()) == {"0": [12, 14, 80]}


@pytest.mark.parametrize("torch", [None, cuda(started=False), cuda(capturing=True)], ids=["none", "unused", "capture"])
def test_no_device_is_asked_that_is_not_in_use(torch):
    assert memory.devices(torch) == {}


BUSY = "import time\nprint(flush=True)\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_a_look_has_the_processor_time_of_the_process_and_its_children(tmp_path, looks):
    """Those of a loader go on while it trains, and others have ended."""
    before = memory.processor_ns()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=-1, stdout=-1, text=True) as child:
        for _ in range(2):
            child.stdout.readline()
        running = memory.processor_ns()
        child.communicate("\n", timeout=60)
    looks.step_closed(1)
    (line,) = lines_in(tmp_path)
    assert before + 0.28e9 < running <= line["processor_ns"]


def test_a_look_has_the_processor_time_of_children_of_children(looks):
    """As where a server forks the processes of a loader."""
    before = memory.processor_ns()
    forks = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", forks], stdin=-1, stdout=-1, text=True) as child:
        for _ in range(2):
            child.stdout.readline()
        assert memory.processor_ns() > before + 0.28e9
        child.communicate("\n", timeout=60)
