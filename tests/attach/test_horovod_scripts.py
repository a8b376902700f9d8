"""Two processes of Horovod on PyTorch, attached: as public scripts train, with planted causes."""

import json
import os
import subprocess

import pytest
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook
from steptime.attached.summary import attached_run
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader, read_attached
from steptime.results.gpu_windows import RECORDS

FRAMEWORK = "horovod_pytorch"
pytestmark = pytest.mark.framework(FRAMEWORK)
SLEEP_S, STEPS = 0.02, 40
SCRIPT = """
import os, sys, time, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler
import horovod.torch as hvd

hvd.init(process_sets="dynamic")
sets = [hvd.add_process_set([each]) for each in range(hvd.size())]
torch.manual_seed(0)
torch.set_num_threads(1)
rank, size = hvd.rank(), hvd.size()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    def forward(self, x):
        time.sleep(SLEEP * (rank == 1))
        return self.layers(x)

data = TensorDataset(torch.randn(640, 64), torch.arange(640) % 4)
sampler = SAMPLER
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
wrapped = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), OPTIONS)
waited = 0.0
for x, y in DataLoader(data, 8, sampler=sampler):
    CLEAR
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    begin = time.perf_counter()
    UPDATE
    waited += time.perf_counter() - begin
hvd.barrier()
os.write(1, f"RESULT {rank} {loss.item():.9f} {waited:.6f}\\n".encode())
"""
DIVIDED, SAME = "DistributedSampler(data, size, rank, shuffle=False)", "torch.utils.data.SequentialSampler(data)"
BY_HAND = """handles = [hvd.allreduce_async_(each.grad, name=name) for name, each in model.named_parameters()]
    for each in handles: hvd.synchronize(each)
    optimizer.step()"""
AFTER_FOUR = {
    "options": "backward_passes_per_step=4",
    "clear": "passes = globals().get('passes', 0) + 1",
    "update": "if passes % 4 == 0: wrapped.step(); wrapped.zero_grad()",
}


def trained(folder, environ, **changes):
    """Return what the ranks printed: loss, and how long they stood in the update."""
    chosen = {
        "sleep": SLEEP_S,
        "sampler": DIVIDED,
        "options": "",
        "update": "wrapped.step()",
        "clear": "wrapped.zero_grad()",
    }
    chosen |= changes
    text = SCRIPT
    for name, value in chosen.items():
        text = text.replace(name.upper(), str(value), 1)
    if chosen["update"] == BY_HAND:
        text = text.replace("wrapped = hvd.DistributedOptimizer", "wrapped = optimizer or hvd.DistributedOptimizer")
    folder.mkdir()
    (folder / "script.py").write_text(text)
    python = interpreter_for(FRAMEWORK)
    words = [python, "-m", "horovod.runner.launch", "-np", "2", "--gloo", python, folder / "script.py"]
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = sorted(line[line.index("RESULT") :].split() for line in done.stdout.splitlines() if "RESULT" in line)
    return [(loss, float(waited)) for _, _, loss, waited in lines]


def attached(folder, **changes):
    """Return what the ranks printed, their lines, and what is found in them."""
    variables = environment(write_hook(folder / "hook"), folder / RECORDS, lines=False, flops=False)
    printed = trained(folder / "work", variables, **changes)
    files = [
        list(map(json.loads, each.read_text().splitlines())) for each in sorted((folder / RECORDS).glob("*.jsonl"))
    ]
    header = AttachedHeader(command=["horovodrun"], started_at="", boot="", begin_ns=0, wall_minus_monotonic_ns=0)
    return printed, files, attached_run(header, read_attached(PlainFolder(folder), folder / RECORDS))


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """With compression to half precision, and a rank that sleeps in its forward pass."""
    return attached(tmp_path_factory.mktemp("slow"), options="compression=hvd.Compression.fp16")


def test_losses_are_those_of_the_job_alone(slow, tmp_path):
    alone = trained(tmp_path / "alone", {}, sleep=0.0, options="compression=hvd.Compression.fp16")
    assert [loss for loss, _ in alone] == [loss for loss, _ in slow[0]]


def test_the_update_that_makes_the_state_of_an_optimizer_is_no_step(slow):
    for lines in slow[1]:
        steps = [line for line in lines if line["kind"] == "step"]
        assert [step["micro_steps"] for step in steps] == [1] * STEPS
        assert not [line for line in lines if line["kind"] == "fault"]


def test_each_gradient_is_on_record_with_the_bytes_that_are_sent(slow):
    halves = 2 * (64 * 64 + 64 + 64 * 4 + 4)
    for lines in slow[1]:
        steps = [line for line in lines if line["kind"] == "step"]
        assert [step["collectives"]["backward:allreduce_async_"][:2] for step in steps] == [[4, halves]] * STEPS


def test_the_rank_that_sleeps_is_waited_for_as_long_as_it_sleeps(slow):
    run = slow[2]
    parts = {part.name: part.ranks_s for part in run.parts}
    assert parts["forward"][1] - parts["forward"][0] == pytest.approx(SLEEP_S, rel=0.3)
    assert parts["sync_wait"][0] == pytest.approx(SLEEP_S, rel=0.4)
    assert parts["sync_wait"][1] < SLEEP_S / 4
    assert "straggler" in {finding.kind for finding in run.findings}


def test_waits_and_updates_are_as_long_as_by_the_script_s_own_clock(slow):
    for (_, by_script_s), lines in zip(slow[0], sorted(slow[1], key=rank_of), strict=True):
        steps = [line for line in lines if line["kind"] == "step"]
        in_call_ns = sum(step["collectives"]["update:wait"][2] + step["regions"]["update"] for step in steps)
        assert in_call_ns * 1e-9 == pytest.approx(by_script_s, rel=0.15)


def rank_of(lines):
    return next(line["rank"] for line in lines if line["kind"] == "rank")


@pytest.fixture(scope="module", params=["the optimizer", "by hand"])
def same(request, tmp_path_factory):
    """Without a sampler that divides the data."""
    changes = {"update": BY_HAND} if request.param == "by hand" else {}
    return attached(tmp_path_factory.mktemp("same"), sampler=SAME, sleep=0.0, **changes)


def test_a_missing_sampler_is_named(same):
    found = [finding.sentence for finding in same[2].findings if "sampler" in finding.sentence]
    assert len(found) == 1
    assert "a step learns from 8 samples, not 16" in found[0]


def test_ranks_of_a_set_of_processes_are_not_said_to_train_one_model(tmp_path):
    (tmp_path / "sets").mkdir()
    own = {"options": "process_set=sets[rank]", "update": "wrapped.step(); model.layers[0].bias.data.add_(0.1 * rank)"}
    _, _, run = attached(tmp_path / "sets", sampler=SAME, sleep=0.0, **own)
    assert run.back_end == "horovod/process sets"
    assert not [finding for finding in run.findings if "sampler" in finding.sentence]


@pytest.fixture(scope="module")
def accumulated(tmp_path_factory):
    """With an exchange after each fourth backward pass."""
    return attached(tmp_path_factory.mktemp("accumulated"), **AFTER_FOUR)


def test_passes_before_an_exchange_are_micro_steps(accumulated):
    for lines in accumulated[1]:
        steps = [line for line in lines if line["kind"] == "step"]
        assert [(step["micro_steps"], step["samples"]) for step in steps] == [(4, 32)] * (STEPS // 4)


def test_the_rank_that_sleeps_in_each_micro_step_is_waited_for(accumulated):
    parts = {part.name: part.ranks_s for part in accumulated[2].parts}
    assert parts["sync_wait"][0] == pytest.approx(4 * SLEEP_S, rel=0.4)
    assert parts["sync_wait"][1] < SLEEP_S
