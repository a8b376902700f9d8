"""Steps of which only times are noted: the record is as if the rule for steps had run all along, in real PyTorch."""

import json
import os
import subprocess

import pytest
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook

pytestmark = pytest.mark.framework("pytorch")

LOOPS = {
    "plain": "1, False, False",
    "clipped": "1, True, False",
    "accumulated": "2, False, False",
    "accumulated and clipped": "3, True, False",
    "of a dataset without indices": "1, False, True",
}
SCRIPT = f"""
import atexit, gc, os, random, sys
import steptime_attach.record_file as record_file
clock = [1_000_000_000]
record_file.now = lambda: clock[0]  # moves only when told, so that two runs have the same times
chance = random.Random(0)

def tick():
    clock[0] += chance.randrange(1, 1000)

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset
from steptime_attach import process, usual_steps
from steptime_attach.usual_steps import UsualSteps

torch.set_num_threads(1)

class Ticks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        tick()
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        tick()
        return gradient

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
        self.fails = False

    def forward(self, x):
        x = Ticks.apply(self.layer(x))
        if self.fails:
            raise ValueError("planted")
        return x

class Samples(Dataset):
    living = []  # a data set that is gone leaves its address to another, by which loaders are known

    def __init__(self):
        self.living.append(self)

    def __len__(self):
        return 400

    def __getitem__(self, index):
        tick()
        return torch.full((8,), float(index)), index % 4

class Stream(IterableDataset):
    def __iter__(self):
        for index in range(400):
            yield Samples()[index]

class Slow:
    def __init__(self):
        self.own = self

    def __del__(self):
        clock[0] += 300_000  # a collection that takes a while

def planted(net, optimizer, loader, x, y):
    # Do what no step before has done; most of it is what real scripts do now and then.
    kind = chance.choice([
        "evaluation", "forward without gradient", "passes for nothing", "cleared by hand", "save", "gradient",
        "a forward that fails", "two forwards", "second update", "collection", "batch dropped", "a backward that fails",
        "no update", "evaluated in training mode", "set to zero",
    ])
    if kind == "evaluation":
        net.eval()
        with torch.no_grad():
            for vx, _ in DataLoader(Samples(), 200):
                net(vx)
                tick()
        net.train()
    elif kind == "forward without gradient":
        with torch.no_grad():
            net(x)
    elif kind == "passes for nothing":
        cross_entropy(net(x), y).backward()
        optimizer.zero_grad()
    elif kind == "cleared by hand":
        cross_entropy(net(x), y).backward()
        for each in net.parameters():
            each.grad = None
    elif kind == "save":
        torch.save(net.state_dict(), os.devnull)
    elif kind == "gradient":
        torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))
    elif kind in ("a forward that fails", "a backward that fails"):
        net.fails = kind == "a forward that fails"
        try:
            loss = cross_entropy(net(x), y)
            loss.backward()
            loss.backward()
        except (ValueError, RuntimeError):
            tick()
        net.fails = False
    elif kind == "two forwards":
        (cross_entropy(net(x), y) + net(x).sum()).backward()
    elif kind == "second update":
        optimizer.step()
    elif kind == "collection":
        Slow()
        gc.collect()
    elif kind == "batch dropped":
        return True
    elif kind == "evaluated in training mode":
        for vx, vy in DataLoader(Samples(), 200):
            cross_entropy(net(vx), vy)
    elif kind == "set to zero":
        optimizer.zero_grad(set_to_none=False)
    return kind == "no update"

def train(passes, clips, streams):
    torch.manual_seed(0)
    gc.disable()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    optimizer.register_step_pre_hook(lambda *_: tick())
    loader = DataLoader(Stream() if streams else Samples(), 4)
    for epoch in range(12):
        for number, (x, y) in enumerate(loader):
            tick()
            if epoch > 1 and chance.random() < 0.01 and planted(net, optimizer, loader, x, y):
                continue
            cross_entropy(net(x), y).backward()
            tick()
            if epoch > 1 and chance.random() < 0.003:
                planted(net, optimizer, loader, x, y)
            if number % passes == passes - 1:
                if clips:
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                tick()
                if epoch > 1 and chance.random() < 0.003:
                    planted(net, optimizer, loader, x, y)
                optimizer.zero_grad()
            if epoch > 1 and chance.random() < 0.003:
                break
    print(*(f"{{each.sum():.9f}}" for each in net.parameters()))

inner = UsualSteps.settle
for name, arguments in {LOOPS!r}.items():
    for alike in ("usual_steps.ALIKE", "1 << 40"):
        child = os.fork()
        if not child:
            noted = [0]

            def settle(self):
                noted[0] += self.number - self.first if self.on else 0
                return inner(self)

            UsualSteps.settle = settle
            process.recorder().usual.needed = eval(alike)
            exec(f"train({{arguments}})")
            atexit._run_exitfuncs()
            print("of", name, os.getpid(), noted[0], sep="|", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, name
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return of each loop how many steps were only noted, and the records of both ways."""
    folder = tmp_path_factory.mktemp("usual")
    (folder / "script.py").write_text(SCRIPT)
    variables = environment(write_hook(folder / "hook"), folder / "record", lines=False, flops=False)
    words = [interpreter_for("pytorch"), "script.py"]
    printed = subprocess.run(
        words, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=True, timeout=300
    ).stdout
    found = {}
    for line in printed.splitlines():
        if line.startswith("of|"):
            _, name, pid, noted = line.split("|")
            (file,) = (folder / "record").glob(f"*-{pid}-*.jsonl")
            lines = [json.loads(each) for each in file.read_text().splitlines()]
            found.setdefault(name, []).append((int(noted), lines))
    return found


def trained(lines):
    """Return what does not depend on the process that trained, nor on what recording costs."""
    kept = [line for line in lines if line["kind"] not in ("process", "memory", "end")]
    return [{key: value for key, value in line.items() if key != "cost_ns"} for line in kept]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_record_is_as_by_the_rule_alone(runs, loop):
    (_, noted), (_, ruled) = runs[loop]
    for ours, theirs in zip(trained(noted), trained(ruled), strict=True):
        assert ours == theirs


@pytest.mark.parametrize("loop", LOOPS)
def test_most_steps_are_only_noted(runs, loop):
    (count, lines), (none, _) = runs[loop]
    steps = sum(line["kind"] == "step" for line in lines)
    assert none == 0
    assert count > steps / 10


@pytest.mark.parametrize("loop", LOOPS)
def test_no_hook_fails(runs, loop):
    assert [line for _, lines in runs[loop] for line in lines if line["kind"] == "fault"] == []
