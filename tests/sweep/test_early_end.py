"""Runs of a sweep that end early: when ranks are told to end, when they train on, and one training of PyTorch."""

import json
import os
import signal
import threading
import time

import pytest
from launching import interpreter_for

from steptime.attach import early_end as rank_side
from steptime.attach import process
from steptime.attach.record_file import ProcessRecord
from steptime.attach.recorder import Recorder
from steptime.execution.progress import Silent
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store
from steptime.runner.attached_run import AttachedCommand
from steptime.sweep.early_end import SAVES, EarlyEnd, is_narrow
from steptime.sweep.plan import STORED, read_plan
from steptime.sweep.runs import run_sweep, sweep_store

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

torch.set_num_threads(1)
world, store = int(sys.argv[1]), os.path.abspath("store")
rank = 0
for other in range(1, world):
    if not os.fork():
        rank = other
        break
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for x in DataLoader(torch.randn(80000, 16), batch_size=2):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
open("whole", "w").close()
"""


@pytest.fixture
def prepared(tmp_path):
    """A command that is about to be run, by two ranks whose records have begun."""
    command = AttachedCommand(["true"], tmp_path / "run", lines=False, flops=False, quiet=True).prepare()
    for rank in (0, 1):
        (tmp_path / "run" / RECORDS / f"host-{rank}-1.jsonl").touch()
    yield command
    command.locked.close()


def arrive(prepared, *ranks, **changes):
    for rank in ranks:
        line = {"step": 60, "rank": rank, "world": 2, "saves": 0, "handles_signal": True} | changes
        (prepared.hook / f"{rank_side.WAITING}host-{rank}.json").write_text(json.dumps(line))


def order(prepared):
    return (prepared.hook / rank_side.ORDER).read_text().strip()


def test_ranks_that_all_wait_at_one_step_are_ended_there(prepared):
    early = EarlyEnd(prepared, 50)
    assert order(prepared) == "50"
    arrive(prepared, 0)
    early.beat(os.getpid())
    assert order(prepared) == "50"
    arrive(prepared, 1)
    early.beat(os.getpid())
    assert (order(prepared), prepared.header["ended_early"], early.reason()) == (rank_side.END, 60, None)


def test_a_script_that_saves_trains_on_and_the_reason_is_kept(prepared):
    early = EarlyEnd(prepared, 50)
    arrive(prepared, 0, saves=1)
    early.beat(os.getpid())
    arrive(prepared, 1)
    early.beat(os.getpid())
    assert (order(prepared), early.reason()) == (rank_side.GO_ON, SAVES)
    assert "ended_early" not in prepared.header


@pytest.mark.parametrize("fault", ["another step", "the same rank twice", "a third process that trains"])
def test_ranks_that_are_not_all_together_are_never_ended(prepared, fault):
    early = EarlyEnd(prepared, 50)
    arrive(prepared, 0)
    arrive(prepared, 1, **{"another step": {"step": 61}, "the same rank twice": {"rank": 0}}.get(fault, {}))
    if fault == "a third process that trains":
        (prepared.folder / RECORDS / "host-2-1.jsonl").touch()
    early.beat(os.getpid())
    assert order(prepared) == "50"


def test_a_rank_that_has_waited_long_may_train_on_and_is_not_counted(prepared):
    early = EarlyEnd(prepared, 50)
    arrive(prepared, 0, 1)
    late = time.time() - 20.0
    for path in prepared.hook.glob(f"{rank_side.WAITING}*"):
        os.utime(path, (late, late))
    early.beat(os.getpid())
    assert order(prepared) == "50"


@pytest.mark.parametrize(("low", "high", "narrow"), [(0.995, 1.004, True), (0.98, 1.01, False), (None, None, False)])
def test_a_step_is_known_well_within_one_percent(low, high, narrow):
    assert is_narrow(1.0, low, high) is narrow


@pytest.fixture
def signals(monkeypatch):
    """The signals that a script with a handler of its own gets."""
    monkeypatch.setattr(process, "_paused", False)  # as before, once the test is over
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("answer", "received"), [(rank_side.END, [signal.SIGTERM]), (rank_side.GO_ON, [])])
def test_a_rank_waits_before_its_step_and_then_does_what_it_is_told(tmp_path, signals, answer, received):
    (tmp_path / rank_side.ORDER).write_text("3")
    recorder = Recorder(ProcessRecord(str(tmp_path / RECORDS), "test"))
    recorder.rank(1, 2, "test")
    rank = rank_side.RankEnd(recorder, str(tmp_path))
    rank.step_begins(2)
    assert list(tmp_path.glob("waiting-*")) == []

    lines = []

    def reply():
        while not (waiting := list(tmp_path.glob("waiting-*.json"))):
            time.sleep(0.01)
        lines.extend(json.loads(path.read_text()) for path in waiting)
        (tmp_path / rank_side.ORDER).write_text(answer)

    sweep = threading.Thread(target=reply)
    sweep.start()
    rank.step_begins(3)
    sweep.join()
    rank.step_begins(4)
    [line] = lines
    assert line == {"step": 3, "rank": 1, "world": 2, "saves": 0, "handles_signal": True}
    assert signals == received


def test_a_rank_without_an_answer_trains_on(tmp_path, signals, monkeypatch):
    (tmp_path / rank_side.ORDER).write_text("3")
    monkeypatch.setattr(rank_side, "LONGEST_NS", 0)
    rank_side.RankEnd(Recorder(ProcessRecord(str(tmp_path), "test")), str(tmp_path)).step_begins(3)
    assert (signals, list(tmp_path.glob("waiting-*"))) == ([], [])


@pytest.mark.framework("pytorch")
def test_two_ranks_of_pytorch_end_at_the_same_step_with_whole_records(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    plan = read_plan([str(interpreter_for("pytorch")), "train.py", "{workers}"], {"workers": ["2"]}, 1)
    store = sweep_store(plan, tmp_path / "sweep")
    with store.lock():
        store.put(STORED, plan.to_json())
        outcome = run_sweep(plan, store, None, Silent(), most_steps=20)
    [run] = (tmp_path / "sweep").glob("runs/*/1")
    header, files = Store.open(run).attached()
    assert (outcome.done, outcome.failed, outcome.whole) == (1, {}, {})
    assert [len(rank.steps) for rank in files.processes] == [header.ended_early] * 2
    assert header.ended_early >= 20
    assert all(rank.end is not None for rank in files.processes)
    assert not (tmp_path / "whole").exists()
