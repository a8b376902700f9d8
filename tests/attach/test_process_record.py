"""The file of a process: opened when needed, never another's, and limited in size."""

import json
import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from steptime.attach import record_file, step_lines
from steptime.attach.record_file import ProcessRecord


def lines_of(file):
    return [json.loads(line) for line in Path(file.path).read_text().splitlines()]


def test_what_does_not_open_the_file_is_written_with_what_does(tmp_path):
    file = ProcessRecord(str(tmp_path / "records"), "test")
    file.write({"kind": "rank", "rank": 3}, opens=False)
    assert not (tmp_path / "records").exists()
    file.write({"kind": "step", "number": 0})
    assert [line["kind"] for line in lines_of(file)] == ["process", "rank", "step"]
    assert lines_of(file)[0]["pid"] == os.getpid()


def test_a_file_of_the_script_that_got_our_descriptor_is_never_written_to(tmp_path):
    file = ProcessRecord(str(tmp_path), "test")
    file.write({"kind": "step", "number": 0})
    os.close(file.descriptor)
    users = os.open(tmp_path / "the users.txt", os.O_WRONLY | os.O_CREAT)
    assert users == file.descriptor  # else the test shows nothing
    file.write({"kind": "step", "number": 1})
    os.close(users)
    assert (tmp_path / "the users.txt").read_text() == ""
    assert [line.get("number") for line in lines_of(file)] == [None, 0, 1]
    os.close(file.descriptor)


def test_a_folder_that_cannot_be_written_loses_lines_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    file = ProcessRecord(str(tmp_path / "file" / "records"), "test")
    assert file.write({"kind": "step", "number": 0}) == 0
    assert file.lost == 1


def test_a_forked_child_has_a_file_of_its_own(tmp_path):
    file = ProcessRecord(str(tmp_path), "torch.backends")
    file.write({"kind": "step", "number": 0})
    child = os.fork()
    if not child:
        try:
            file.forked()
            file.write({"kind": "step", "number": 100})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    heads = {json.loads(path.read_text().splitlines()[0])["pid"]: path for path in tmp_path.glob("*.jsonl")}
    assert set(heads) == {os.getpid(), child}
    entry = json.loads(heads[child].read_text().splitlines()[0])["entry"]
    assert entry == "torch.backends+fork"


@pytest.mark.parametrize(("step_ms", "seconds"), [(1, 100), (50, 3600), (500, 36_000)])
def test_a_record_of_ten_hours_has_at_most_200_mb(tmp_path, monkeypatch, step_ms, seconds):
    at = [0]
    for module in (record_file, step_lines):
        monkeypatch.setattr(module, "now", lambda: at[0])
    file = ProcessRecord(str(tmp_path), "test")
    monkeypatch.setattr(os, "write", lambda _, data: len(data))
    lines = step_lines.StepLines(file)
    step = {
        "kind": "step",
        "begin_ns": 10**15,
        "duration_ns": step_ms * 1_000_000,
        "micro_steps": 1,
        "regions": dict.fromkeys(["input", "forward", "backward", "update"], 10**8),
        "gaps": dict.fromkeys(["input>forward", "forward>backward", "backward>update", "update>input"], 10**5),
        "intervals": [["allreduce", 10**7, 10**15, 10**15]] * 20,
    }
    for number in range(seconds * 1000 // step_ms):
        at[0] += step_ms * 1_000_000
        lines.add({**step, "number": number})
    lines.flush()
    assert file.written <= 2_000_000 + seconds * record_file.BYTES_PER_SECOND + 10_000
    assert 2_000_000 + 36_000 * record_file.BYTES_PER_SECOND < 200_000_000


def test_every_step_is_in_a_line_of_its_own_or_in_sums(tmp_path, monkeypatch):
    monkeypatch.setattr(record_file, "FREE_BYTES", 20_000)
    file = ProcessRecord(str(tmp_path), "test")
    lines = step_lines.StepLines(file)
    for number in range(500):
        step = {"kind": "step", "number": number, "begin_ns": 0, "duration_ns": 10**7, "micro_steps": 1}
        lines.add({**step, "regions": {"forward": 10**6}, "gaps": {}, "optimizers": [0] * 40})
    lines.flush()
    written = [line for line in lines_of(file) if line["kind"] != "process"]
    counted = [
        number
        for line in written
        for number in ([line["number"]] if line["kind"] == "step" else range(line["first"], line["last"] + 1))
    ]
    assert sorted(counted) == list(range(500))
    assert sum(line["duration_ns"] for line in written) == 500 * 10**7
    assert sum(line["kind"] == "step" for line in written) < 250


def step_of(number):
    regions = {"forward": 10**6}
    return {"kind": "step", "number": number, "begin_ns": 0, "duration_ns": 10**7, "regions": regions, "gaps": {}}


def written_steps(file):
    return [line["number"] for line in lines_of(file) if line["kind"] == "step"]


@pytest.fixture
def step_file(tmp_path):
    """A file whose first steps are written, so that the next one waits for others."""
    file = ProcessRecord(str(tmp_path), "test")
    lines = step_lines.StepLines(file)
    for number in range(step_lines.AT_ONCE):
        lines.add(step_of(number))
    yield file, lines
    lines.flush()


def test_first_steps_are_written_at_once_and_further_ones_together(step_file):
    file, lines = step_file
    assert written_steps(file) == list(range(64))
    lines.due = record_file.now() + 10**12
    lines.add(step_of(64))
    assert written_steps(file)[-1] == 63
    lines.due = 0
    lines.add(step_of(65))
    assert written_steps(file)[-2:] == [64, 65]


def test_steps_that_wait_come_before_a_line_of_another_kind(step_file):
    file, lines = step_file
    lines.due = record_file.now() + 10**12
    lines.add(step_of(64))
    file.write({"kind": "fault"})
    assert [line["kind"] for line in lines_of(file)[-2:]] == ["step", "fault"]


def test_a_step_behind_which_none_comes_is_written_too(step_file):
    file, lines = step_file
    lines.add(step_of(64))
    until = time.monotonic() + 10
    while written_steps(file)[-1] != 64 and time.monotonic() < until:
        time.sleep(0.01)
    assert written_steps(file)[-1] == 64


@pytest.mark.parametrize(("age_s", "waits_s"), [(0, 0.25), (5, 0.5), (3600, 1.0)])
def test_steps_wait_for_a_tenth_of_the_time_since_the_first_within_bounds(step_file, age_s, waits_s):
    _, lines = step_file
    at = record_file.now()
    lines.begun = at - age_s * 10**9
    lines.write_at(at)
    assert lines.due - at == waits_s * 1e9


def test_a_process_that_is_killed_loses_a_quarter_second_of_steps_at_most(tmp_path):
    child = os.fork()
    if not child:
        lines = step_lines.StepLines(ProcessRecord(str(tmp_path), "test"))
        moments = [record_file.now()]
        for number in range(1000):
            lines.add({**step_of(number), "at": moments[-1]})
            time.sleep(0.001)
            moments.append(record_file.now())
        longest = max(later - earlier for earlier, later in pairwise(moments))
        (tmp_path / "last").write_text(f"{moments[-1]} {longest}")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (path,) = tmp_path.glob("*.jsonl")
    steps = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [step["number"] for step in steps] == list(range(len(steps)))
    last, longest = map(int, (tmp_path / "last").read_text().split())
    assert last - steps[-1]["at"] < 250_000_000 + 2 * longest  # a step that lasts is written when it ends


def test_steps_that_wait_when_a_process_forks_are_written_by_the_parent_alone(step_file):
    file, lines = step_file
    lines.due = record_file.now() + 10**12
    lines.add(step_of(64))
    child = os.fork()
    if not child:
        try:
            file.forked()
            step_lines.StepLines(file).add(step_of(0))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    lines.flush()
    assert written_steps(file) == list(range(65))
    others = [path for path in Path(file.folder).glob("*.jsonl") if str(path) != file.path]
    assert [json.loads(line).get("number") for path in others for line in path.read_text().splitlines()] == [None, 0]


def test_no_step_waits_where_no_thread_can_be_started(step_file, monkeypatch):
    file, lines = step_file

    def start(_):
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", start)
    for number in (64, 65):
        lines.add(step_of(number))
        assert written_steps(file)[-1] == number


def test_lines_of_which_a_part_cannot_be_written_are_counted(step_file, monkeypatch):
    file, lines = step_file
    whole = os.write

    def write(descriptor, data):
        monkeypatch.setattr(os, "write", full)
        return whole(descriptor, data[: data.index(b"\n") + 5])

    def full(*_):
        raise OSError

    monkeypatch.setattr(os, "write", write)
    lines.due = record_file.now() + 10**12
    for number in (64, 65, 66):
        lines.add(step_of(number))
    lines.flush()
    assert file.lost == 2
