"""TorchTraining scripts in real PyTorch, attached: what they do is their own, and what they took is in the record."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import interpreter_for
from warm_frameworks import warm_framework

from steptime.attach.folder import environment, write_hook
from steptime.launchers.base import free_ports

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "attach"
sys.path.insert(0, str(BENCHMARKS))
import faults  # noqa: E402 - a program of benchmarks
import kinds  # noqa: E402

pytestmark = pytest.mark.framework("pytorch")

TRAIN = """
import copy, io, os, pickle, signal, sys, threading, time
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
samples = [(torch.randn(16), i % 4) for i in range(64)]

def train(pause=0.0):
    for x, y in DataLoader(samples, 4):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        time.sleep(pause)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss
"""


def attach(folder, script, *, lines=False, flops=False, begin=TRAIN):
    """Run ``script`` attached; return how it ended and the lines of each process that trained."""
    (folder / "script.py").write_text(begin + script)
    warm = warm_framework("pytorch", attached=True, lines=lines, flops=flops)
    done = warm.ended(folder, "script.py")
    warm.move_records(folder / "record")
    return done, records_of(folder)


def start_attached(folder, script, *, lines=False, begin=TRAIN):
    """Do likewise in a process of its own, where its start or its end is part of the fact."""
    path = folder / "script.py"
    path.write_text(begin + script)
    environ = {**os.environ, **environment(write_hook(folder / "hook"), folder / "record", lines=lines, flops=False)}
    done = subprocess.run(
        [interpreter_for("pytorch"), path], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    return done, records_of(folder)


def records_of(folder):
    files = sorted((folder / "record").glob("*.jsonl"))
    return [list(map(json.loads, file.read_text().splitlines())) for file in files]


def kinds_of(lines, kind):
    return [line for line in lines if line["kind"] == kind]


ENDINGS = {
    "success": ("", 0),
    "exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(7)", 7),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    "exception": ("net(torch.randn(3))", 1),
}
# Each ending in a process of its own, which writes its errors to its own file: all import torch once.
FORKED = """
for name, ending in {endings}.items():
    child = os.fork()
    if not child:
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), 2)
        train()
        train()
        exec(ending)
        sys.exit(0)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def endings(tmp_path_factory):
    """The exit code of each ending, its errors, and the record of its process."""
    folder = tmp_path_factory.mktemp("endings")
    done, processes = start_attached(
        folder, FORKED.format(endings={name: ending for name, (ending, _) in ENDINGS.items()})
    )
    codes = dict(line.split() for line in done.stdout.splitlines())
    processes = sorted((lines for lines in processes), key=lambda lines: lines[0]["begin_ns"])
    assert len(processes) == len(ENDINGS), done.stderr
    return {
        name: (int(codes[name]), (folder / name).read_text(), lines)
        for name, lines in zip(ENDINGS, processes, strict=True)
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_ends_as_it_does_alone_and_its_steps_are_kept(endings, ending):
    code, errors, lines = endings[ending]
    assert code == ENDINGS[ending][1]
    assert bool(errors) == (ending == "exception")
    assert lines[0]["entry"] == "torch.backends+fork"
    assert len(kinds_of(lines, "step")) >= 31  # the last one ends with the script
    assert not kinds_of(lines, "fault")
    assert len(kinds_of(lines, "end")) == (ending in {"success", "exit", "exception"})


def test_the_traceback_of_an_error_below_a_patch_has_no_frame_of_ours(endings):
    errors = endings["exception"][1]
    assert "steptime_attach" not in errors
    assert errors.startswith("Traceback (most recent call last):\n")
    assert errors.splitlines()[-1].startswith("RuntimeError: ")


def test_lines_of_the_users_code_are_named_and_no_thread_is_left_at_the_end(tmp_path):
    # Handlers that are registered first run last: after the recorder's.
    prelude = "import atexit, threading\natexit.register(lambda: print([t.name for t in threading.enumerate()]))\n"
    done, (lines,) = start_attached(tmp_path, "for _ in range(3): train(0.03)\n", lines=True, begin=prelude + TRAIN)
    assert done.stdout == "['MainThread']\n", done.stderr
    counted = {}
    for line in kinds_of(lines, "lines"):
        for name, samples in line["places"].get("forward>backward", {}).items():
            counted[name] = counted.get(name, 0) + samples
    assert max(counted, key=counted.get) == f"script.py:{3 + prelude.count(chr(10)) + 12} train"


OUTSIDE = """
def evaluate():
    with torch.no_grad():
        for x, _ in DataLoader(list(samples), 16):
            net(x)
            time.sleep(0.02)

evaluate()
train()
torch.save(net.state_dict(), "last.pt")
evaluate()
"""


def test_an_evaluation_before_training_and_one_with_a_checkpoint_behind_it_are_on_record(tmp_path):
    _, (lines,) = attach(tmp_path, OUTSIDE)
    before, behind = kinds_of(lines, "outside")
    assert (before["before"], behind["before"]) == (True, False)
    assert min(before["evaluation_ns"], behind["evaluation_ns"]) >= 3 * 20_000_000
    assert before["save_ns"] == 0 < behind["save_ns"]
    assert not any("apart" in step for step in kinds_of(lines, "step"))


TEXT = """
train()
row = {"input_ids": torch.ones(16, dtype=torch.long), "attention_mask": (torch.arange(16) < 12).long()}
for batch in DataLoader([row] * 12, 4):
    net(batch["input_ids"].float()).sum().backward()
    optimizer.step()
graphs = [torch.randn(1 + i % 3, 16) for i in range(10)]
for nodes, _ in DataLoader(graphs, 4, collate_fn=lambda rows: (torch.cat(rows), torch.zeros(1)), num_workers=WORKERS):
    net(nodes).sum().backward()
    optimizer.step()
"""


def test_flops_of_a_step_are_counted_when_asked_and_batches_always(tmp_path):
    done, (lines,) = attach(tmp_path, TEXT.replace("WORKERS", "0"), flops=True)
    (*_, pictures), texts = kinds_of(lines, "step")[:10], kinds_of(lines, "step")[-5:-3]
    assert (pictures["samples"], "tokens" in pictures) == (4, False)
    assert [(step["samples"], step["tokens"], step["mask"]) for step in texts] == [(4, 64, [64, 48])] * 2
    (counted,) = kinds_of(lines, "flops")
    assert counted["forward"] == 2 * 4 * 16 * 4, done.stderr
    assert counted["backward"] == 2 * 4 * 16 * 4  # of the weight; the input needs no gradient


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_batch_without_a_dimension_of_samples_has_as_many_as_the_loader_asked_for(tmp_path, workers):
    done, (lines,) = attach(tmp_path, TEXT.replace("WORKERS", workers))
    assert [step["samples"] for step in kinds_of(lines, "step")[-3:]] == [4, 4, 2], done.stderr


def test_no_object_of_the_users_keeps_anything_of_ours(tmp_path):
    done, _ = attach(
        tmp_path,
        "train()\n"
        "saved = io.BytesIO()\n"
        "torch.save(net, saved)\n"
        "everything = map(pickle.dumps, [net, optimizer, copy.deepcopy(net), saved.getvalue()])\n"
        "print(any(b'steptime' in each for each in everything))\n",
    )
    assert done.stdout == "False\n", done.stderr


def test_a_script_that_only_predicts_leaves_no_record_but_was_seen(tmp_path):
    _, processes = start_attached(tmp_path, "with torch.no_grad(): net(samples[0][0])\n")
    assert processes == []
    (seen,) = (tmp_path / "record").glob("seen-*.txt")
    assert " torch " in seen.read_text()


@pytest.mark.costly
def test_a_sitecustomize_of_the_users_is_run_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('the user\\'s own')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    done, (lines,) = start_attached(tmp_path, "train()\n")
    assert done.stdout == "the user's own\n"
    assert len(kinds_of(lines, "step")) == 16


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """How the script in whose hooks faults are raised ends without a hook."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "script.py").write_text(f"import sys\nsys.argv[1:] = ['40', 'net.pt']\n{faults.PYTORCH}")
    return 0, warm_framework("pytorch", attached=False).run(folder, "script.py")


@pytest.mark.sampled
@pytest.mark.parametrize(("rate", "seed"), [(1.0, 1), (0.3, 2), (0.05, 3)])
def test_faults_in_every_hook_leave_the_result_to_the_bit(alone, tmp_path, rate, seed):
    ended, raised = faults.faulty_run(interpreter_for("pytorch"), tmp_path, 40, rate, seed)
    assert ended == alone
    assert raised > 50


# Two ranks, as torchrun starts them, which need not import torch.
RANKS = """
import os, runpy, sys
sys.path.insert(0, SCRIPTS)
os.environ.update(OUT=os.getcwd(), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="@")
ranks = [str(rank) for rank in range(2)]
for rank in ranks:
    if not os.fork():
        os.environ.update(RANK=rank, LOCAL_RANK=rank)
        sys.argv[1:] = ["ddp"]
        runpy.run_path(SCRIPTS + "/loops.py", run_name="__main__")
        sys.exit(0)
sys.exit(any([os.wait()[1] for rank in ranks]))
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Two processes without the hook, and with it as torchrun starts them: what the record and the script have."""
    interpreter_for("pytorch")
    folder = tmp_path_factory.mktemp("ddp")
    (kind,) = [kind for kind in kinds.KINDS if kind.name == "ddp"]
    python = kinds.python_of(kind)
    (folder / "base").mkdir()
    script = RANKS.replace("SCRIPTS", repr(str(BENCHMARKS / "scripts"))).replace("@", str(free_ports(1)[0]))
    (folder / "base" / "script.py").write_text(script)
    warm_framework("pytorch", attached=False).run(folder / "base", "script.py")
    variables = environment(write_hook(folder / "hook"), folder / "attached" / "record", lines=False, flops=False)
    ended = kinds.run(kind, python, folder / "attached", variables)
    assert ended[0] == 0, ended[1]
    return kinds.judge(kind, folder / "base", folder / "attached"), folder / "attached" / "record"


def test_every_process_that_trains_is_reached_and_no_other(two_processes):
    judged, _ = two_processes
    assert (judged["processes"], judged["steps"]) == (2, {0: 24, 1: 24})
    assert judged["faults"] == []


def test_losses_and_weights_of_two_processes_are_equal_to_the_bit(two_processes):
    assert two_processes[0]["equal_to_the_bit"]


@pytest.mark.alone
@pytest.mark.parametrize("cause", ["load", "slow forward", "evaluation", "save"])
def test_planted_causes_are_found_within_a_fifth(two_processes, cause):
    assert two_processes[0]["found"][cause]["share"] == pytest.approx(1, abs=0.2)


def test_the_record_has_gradients_buckets_and_synchronised_passes(two_processes):
    for lines in kinds.records(two_processes[1]):
        passes = kinds_of(lines, "gradients")
        assert len(passes) == 3
        assert [len(line["ready"]) for line in passes] == [10] * 3
        assert all(sum(size for size, _ in line["ready"]) == line["bytes"] == 4223016 for line in passes)
        (buckets,) = kinds_of(lines, "buckets")
        assert sum(buckets["bytes"]) == 4223016
        for step in kinds_of(lines, "step"):
            ((begin, last, end, synchronised),) = step["backwards"]
            assert begin < last < end
            assert synchronised is True


def test_regions_and_gaps_of_a_step_add_up_to_its_time(two_processes):
    for lines in kinds.records(two_processes[1]):
        for step in kinds_of(lines, "step"):
            parts = [step["regions"], step["gaps"]]
            parts += [step["apart"][name] for name in ("regions", "gaps") if "apart" in step]
            assert sum(sum(part.values()) for part in parts) == step["duration_ns"]


def test_steps_adjoin(two_processes):
    for lines in kinds.records(two_processes[1]):
        steps = kinds_of(lines, "step")
        assert [step["number"] for step in steps] == list(range(24))
        ends = [step["begin_ns"] + step["duration_ns"] for step in steps]
        assert [step["begin_ns"] for step in steps[1:]] == ends[:-1]


AROUND_DDP = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0, world_size=1)
wrapped = torch.nn.parallel.DistributedDataParallel(net)
for called in (wrapped, wrapped.module):
    net = called
    train()
"""


def test_passes_around_ddp_and_sums_of_weights_are_on_record(tmp_path):
    done, (lines,) = attach(tmp_path, AROUND_DDP)
    assert done.returncode == 0, done.stderr
    synchronised = [[each[3] for each in line["backwards"]] for line in kinds_of(lines, "step")]
    assert synchronised == [[True]] * 16 + [[None]] * 16
    weights = kinds_of(lines, "weights")
    assert [line["step"] for line in weights] == [1, 2, 4, 8, 16, 32]
    assert [line.get("bypassed", 0) for line in weights] == [0, 0, 0, 0, 0, 16]
    assert len({tuple(line["sums"]) for line in weights}) == len(weights)


GRAPHS = """
import torch._dynamo

def trained(loss_of):
    for x, y in DataLoader(samples, 4):
        loss_of(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()

def loss_of(x, y):
    return torch.nn.functional.cross_entropy(net(x), y)

def outside(x, y):  # the network is called where a graph breaks, as in a wrapper's forward
    torch._dynamo.graph_break()
    return torch.nn.functional.cross_entropy(hidden(x), y)

hidden = torch._dynamo.disable(net, recursive=True)
for name, function in {"inside": loss_of, "outside": outside, "none": None, "again": loss_of}.items():
    child = os.fork()
    if not child:
        compiled = torch.compile(function, backend="eager", dynamic=False) if function else loss_of
        trained(compiled)
        if name == "again":
            trained(lambda x, y: compiled(x[:2], y[:2]))
        sys.exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.costly
def test_graphs_of_torch_compile_are_counted_at_the_end_and_not_where_nothing_is_compiled(tmp_path):
    done, processes = attach(tmp_path, GRAPHS)
    assert done.returncode == 0, done.stderr
    inside, outside, none, again = sorted(processes, key=lambda lines: lines[0]["begin_ns"])
    assert [kinds_of(inside, "graphs")[0][name] for name in ("operations", "breaks")] == [2, 0]
    assert "recompilations" not in kinds_of(inside, "graphs")[0]
    assert kinds_of(again, "graphs")[0]["recompilations"] == 1
    assert "size mismatch" in kinds_of(again, "graphs")[0]["guards"][0]
    assert kinds_of(outside, "graphs")[0]["operations"] < 2
    assert kinds_of(outside, "graphs")[0]["breaks"] > 0
    assert kinds_of(none, "graphs") == []


BY_HAND = """
import os
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

nets = [torch.nn.Linear(16, 4) for _ in range(3)]
net = nets[0]
names = [name for name, _ in net.named_parameters()]

def subtract(gradients):
    with torch.no_grad():
        for weights, gradient in zip(net.parameters(), gradients):
            weights -= 0.01 * gradient

def loss(weights, x):
    return functional_call(net, weights, (x,)).square().mean()

def listed(x):
    subtract(torch.autograd.grad(net(x).square().mean(), list(net.parameters())))

def generated(x):
    subtract(torch.autograd.grad(net(x).square().mean(), net.parameters()))

state = tuple(net.parameters())

def functional(x):  # as torchopt: from the second step on, weights are no parameters
    global state
    gradients = torch.autograd.grad(loss(dict(zip(names, state)), x), state)
    state = tuple((w - 0.01 * g).detach().requires_grad_() for w, g in zip(state, gradients))

weights = dict(net.named_parameters())

def transformed(x):
    global weights
    gradients = grad(loss)(weights, x)
    weights = {name: w.detach() - 0.01 * gradients[name] for name, w in weights.items()}

stacked = {name: w.detach() for name, w in stack_module_state(nets)[0].items()}

def ensemble(x):
    global stacked
    of_all = lambda weights: vmap(loss, in_dims=(0, None))(weights, x).sum()
    gradients = grad(of_all)(stacked)
    stacked = {name: w - 0.01 * gradients[name] for name, w in stacked.items()}

def saliency(x):
    x.requires_grad_()
    torch.autograd.grad(net(x).square().mean(), x)

for step in (listed, generated, functional, transformed, ensemble, saliency):
    if not os.fork():
        for _ in range(6):
            step(torch.randn(8, 16))
        open(step.__name__ + "-" + str(os.getpid()), "w").close()
        raise SystemExit
    os.wait()
"""


def test_gradients_of_weights_that_a_script_updates_by_itself_make_steps_and_those_of_inputs_none(tmp_path):
    steps = steps_by_script(tmp_path, BY_HAND)
    assert steps == {
        **dict.fromkeys(("listed", "generated", "functional", "transformed", "ensemble"), 6),
        "saliency": 0,
    }


STATES = """
import os
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict

def passes(net, optimizer, steps):
    for _ in range(steps):
        net(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

def made(rate, kind=torch.optim.AdamW):
    net = torch.nn.Linear(16, 4)
    return net, kind(net.parameters(), lr=rate)

def resumed():
    net, optimizer = made(0.1)
    get_state_dict(net, optimizer)
    passes(net, optimizer, 6)

def resumed_with_a_tensor():
    net, optimizer = made(torch.tensor(0.1))
    get_state_dict(net, optimizer)
    passes(net, optimizer, 6)

def two_resumed():
    both = [made(0.1), made(0.1)]
    for net, optimizer in both:
        get_state_dict(net, optimizer)
    passes(*both[0], 6)

def warmed_up_from_no_rate():
    net, optimizer = made(0.0)
    passes(net, optimizer, 6)

for script in (resumed, resumed_with_a_tensor, two_resumed, warmed_up_from_no_rate):
    if not os.fork():
        script()
        open(script.__name__ + "-" + str(os.getpid()), "w").close()
        raise SystemExit
    os.wait()
"""


def steps_by_script(folder, begin):
    """Return how many steps each of the scripts has, which leave a file of their name and process."""
    done, records = attach(folder, "", begin=begin)
    assert done.returncode == 0, done.stderr
    steps = {kinds_of(lines, "process")[0]["pid"]: len(kinds_of(lines, "step")) for lines in records}
    ended = (path.name.partition("-") for path in folder.iterdir() if "-" in path.name)
    return {name: steps.get(int(pid), 0) for name, _, pid in ended}


@pytest.mark.costly
def test_an_update_without_a_rate_or_a_pass_makes_the_state_of_a_checkpoint_and_no_step(tmp_path):
    steps = steps_by_script(tmp_path, STATES)
    assert len(steps) == 4
    assert set(steps.values()) == {6}


OVER_RPC = """
import os
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
import torch, torch.distributed.autograd as over_all, torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

net = torch.nn.Linear(16, 4)
rpc.init_rpc("one", rank=0, world_size=1)
optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(weights) for weights in net.parameters()], lr=0.1)
for _ in range(6):
    with over_all.context() as context:
        over_all.backward(context, [net(torch.randn(8, 16)).square().mean()])
        optimizer.step(context)
rpc.shutdown()
"""


@pytest.mark.costly
def test_steps_of_distributed_autograd_have_their_forward_backward_and_update(tmp_path):
    done, (lines,) = attach(tmp_path, "", begin=OVER_RPC)
    assert done.returncode == 0, done.stderr
    steps = kinds_of(lines, "step")
    assert [step["micro_steps"] for step in steps] == [1] * 6
    assert all({"forward", "backward", "update"} <= step["regions"].keys() for step in steps)


MODULES = """
class Sized(torch.nn.Parameter):
    def numel(self):
        raise RuntimeError("of a library that does not tell")

class Own(torch.nn.Linear):
    def __init__(self):
        super().__init__(16, 4)
        self.weight = Sized(self.weight.detach())

nets = {
    "lazy, tried before": torch.nn.LazyLinear(4),
    "lazy until its first step": torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.ReLU(), torch.nn.LazyLinear(4)),
    "lazy in parts": torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.LazyBatchNorm1d(), torch.nn.LazyLinear(4)),
    "a tensor of its own kind": Own(),
    "beside one on meta": torch.nn.Linear(16, 4),
}
nets["lazy, tried before"](torch.randn(4, 16))
nets["beside one on meta"].unused = torch.nn.Linear(3, 3, device="meta")
for net in nets.values():
    optimizer = torch.optim.SGD([each for each in net.parameters() if not each.is_meta], lr=1e-2)
    train()
"""


def test_modules_whose_parameters_have_no_size_yet_are_measured_as_others(tmp_path):
    done, (lines,) = attach(tmp_path, MODULES)
    assert done.returncode == 0, done.stderr
    assert kinds_of(lines, "fault") == []
    steps = kinds_of(lines, "step")
    assert len(steps) >= 5 * 16 - 1
    assert [step["number"] for step in steps if not {"forward", "backward", "update"} <= step["regions"].keys()] == []


WITHOUT_GRADIENT = """
class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.own = torch.nn.Linear(16, 4)

    def forward(self, x):
        time.sleep(0.03)
        return self.own(x)

def run(module, x):
    with torch.no_grad():
        return module(x)

def generate(module, x):
    return run(module, x)

slow = Slow()
for step, (x, y) in enumerate(DataLoader(samples * 2, 4)):
    generate(slow, x)
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    for _ in range(2 * (step % 4 == 0)):
        with torch.no_grad(): slow(torch.randn(4, 16))
"""


@pytest.mark.costly
def test_lines_of_passes_without_gradient_are_those_that_call_the_module_and_none_of_evaluations(tmp_path):
    done, (lines,) = attach(tmp_path, WITHOUT_GRADIENT, lines=True)
    assert done.returncode == 0, done.stderr
    for place, function in (("nograd", "run"), ("evaluation", "<module>")):
        seen = {line for one in kinds_of(lines, "lines") for line in one["places"].get(place, ())}
        assert {line.partition(" ")[2] for line in seen} == {function}


BATCH, LENGTH, WIDTH, LAYERS, WORDS = 4, 16, 32, 2, 64
TRANSFORMER = f"""
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.out = nn.Linear({WIDTH}, 3 * {WIDTH}), nn.Linear({WIDTH}, {WIDTH})

    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, -1)
        return self.out((q @ k.mT).softmax(-1) @ v)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm({WIDTH})
        self.up, self.down = nn.Linear({WIDTH}, 4 * {WIDTH}), nn.Linear(4 * {WIDTH}, {WIDTH})

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(torch.relu(self.up(x)))

model = nn.Sequential(
    nn.Embedding({WORDS}, {WIDTH}), *(Layer() for _ in range({LAYERS})), nn.Linear({WIDTH}, {WORDS}, bias=False)
)
texts = torch.randint(0, {WORDS}, (8 * {BATCH}, {LENGTH}))
pairs = torch.utils.data.TensorDataset(texts, texts.roll(-1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
half = torch.autocast("cpu", torch.bfloat16)

def step(x, y, forward=model.forward):
    model.forward = forward
    nn.functional.cross_entropy(model(x).flatten(0, 1).float(), y.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()

def around(x, y):
    with half:
        step(x, y)

def beside(x, y):
    with torch.no_grad(), half:
        model(x)
    step(x, y)

kinds = dict(plain=step, around=around, inside=lambda x, y: step(x, y, half(type(model).forward.__get__(model))))
for name, train in dict(kinds, beside=beside).items():
    if not (child := os.fork()):
        sys.argv[:] = [name]
        for x, y in DataLoader(pairs, {BATCH}):
            train(x, y)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


@pytest.fixture(scope="module")
def transformers(tmp_path_factory):
    """The lines of a small transformer that is trained in four ways, by their names."""
    done, processes = attach(tmp_path_factory.mktemp("transformers"), TRANSFORMER, flops=True)
    assert done.returncode == 0, done.stderr
    return {lines[0]["program"][0]: lines for lines in processes}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("kind", "precisions"), [("plain", ["fp32"]), ("around", ["bf16"]), ("inside", ["bf16"]), ("beside", ["fp32"])]
)
def test_the_precision_is_that_of_an_autocast_with_gradient_else_of_the_weights(transformers, kind, precisions):
    line = kinds_of(transformers[kind], "weights")[-1]
    assert (line["precisions"], line["device"], line["threads"]) == (precisions, "cpu", 1)


@pytest.mark.costly
def test_six_for_each_token_and_parameter_is_what_torch_counts_without_attentions_products(transformers):
    line = kinds_of(transformers["plain"], "weights")[-1]
    (counted,) = kinds_of(transformers["plain"], "flops")
    (tokens,) = {step["tokens"] for step in kinds_of(transformers["plain"], "step") if "tokens" in step}
    attention = 3 * LAYERS * BATCH * 2 * (2 * LENGTH * LENGTH * WIDTH)  # two products, backward twice as much
    matrices = LAYERS * 12 * WIDTH**2 + WIDTH * WORDS
    assert counted["forward"] + counted["backward"] - attention == 6 * matrices * tokens
    # The rule counts biases and norms too (2 % of these layers), which multiply no matrix; not the looked-up table.
    assert 6 * matrices * tokens < 6 * line["elements"] * tokens < 1.03 * 6 * matrices * tokens


EXPERTS = """
from steptime_attach.pytorch.weights import routes

class Layer(torch.nn.Module):
    def __init__(self, outputs, experts, stacked=None):
        super().__init__()
        self.gate, self.list = torch.nn.Linear(16, outputs), torch.nn.ModuleList(experts)
        self.stacked = stacked

expert = lambda: torch.nn.Linear(16, 16)
nets = {
    "experts": Layer(4, [expert() for _ in range(4)]),
    "layers": Layer(16, [expert() for _ in range(4)]),
    "stacked": Layer(16, [], torch.nn.Parameter(torch.zeros(4, 16, 16))),
    "positions": Layer(16, [], torch.nn.Parameter(torch.zeros(1, 16, 16))),
    "convolutions": torch.nn.Conv1d(16, 16, 3),
}
print([name for name, net in nets.items() if routes(torch, net)])
"""


def test_experts_are_known_by_an_output_for_each_or_by_weights_of_three_dimensions(tmp_path):
    done, _ = attach(tmp_path, EXPERTS)
    assert done.stdout == "['experts', 'stacked']\n", done.stderr


LEARN = """
def learn(*batches):
    loss = sum(torch.nn.functional.cross_entropy(net(x), y) for x, y in batches)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

loader = DataLoader(samples, 4)
for epoch in range(6):
"""
# What a step has in each of them, and the body of an epoch.
FETCHED = {
    "continue": ({4}, "    [learn(b) for i, b in enumerate(loader) if i % 3 != 2]"),
    "break": (
        {4},
        """
    for i, batch in enumerate(loader):
        if i == 3:
            break
        learn(batch)""",
    ),
    "next in a loop until one fits": (
        {4},
        """
    batches = iter(loader)
    for i in range(8):
        batch = next(batches)
        while i % 4 == 3 and batch[1][0] != 0:
            batch = next(batches)
        learn(batch)
        batches = batches if i % 4 != 3 else iter(loader)""",
    ),
    "pairs": (
        {8},
        "    batches = iter(loader); [learn((torch.cat([x, next(batches)[0]]), y.repeat(2))) for x, y in batches]",
    ),
    "fetched together": (
        {20, 4},
        """
    batches = iter(loader)
    for count in (5, 5, 5, 1):
        learn(*[next(batches) for _ in range(count)])""",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FETCHED)
def test_a_batch_that_was_fetched_and_dropped_is_in_no_steps_samples(tmp_path, name):
    expected, epoch = FETCHED[name]
    done, (lines,) = attach(tmp_path, LEARN + epoch)
    assert done.returncode == 0, done.stderr
    assert {step["samples"] for step in kinds_of(lines, "step")[1:]} == expected
    assert kinds_of(lines, "fault") == []
