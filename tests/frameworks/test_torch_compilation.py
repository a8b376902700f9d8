"""torch.compile gets the network of every strategy, not only the loss behind it."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launching import check_job, interpreter_for, relative_error
from layer_workloads import every_kind, grouped_tokens, masked_tokens, shared_outputs, transformer_of_images

import steptime
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.own_module import find_own_module
from steptime.catalog.workloads.table import own_workload

pytestmark = [pytest.mark.framework("pytorch"), pytest.mark.needs("compiler")]

SESSIONS = """
import importlib, json, os, sys, types
sys.path.insert(0, {source!r})
sys.path.insert(0, {folder!r})
import torch
from torch._dynamo.utils import counters
from steptime.libraries.torch.session import TorchSession

os.environ["LOCAL_RANK"] = "0"  # which DeepSpeed wants
torch.set_num_interop_threads = lambda count: None  # of a process it can be set once
compiler = torch.compile  # graphs are taken as ever, and no code is made of them
torch.compile = lambda function, mode=None, **how: compiler(function, backend="eager", **how)
strategies = importlib.import_module("steptime.frameworks.{framework}.strategies").STRATEGIES
for number, job in enumerate(json.loads({jobs!r})):
    torch._dynamo.reset()
    counters.clear()
    place = types.SimpleNamespace(
        rank=0, workers=1, local_rank=0, servers=0, interface="lo", nccl_interface="=lo", folder={folder!r},
        root_port=number, root_address="",
    )
    session = TorchSession(job, place, strategies[job["strategy"]])
    losses = []
    for _ in range(3):
        session.step()
        losses.append(session.loss())
    facts = dict(session.facts(), **session.facts_at_end())
    print("found", json.dumps(dict(facts, losses=losses)), flush=True)
    session.close()
os._exit(0)  # threads of a process group that is still open may abort an ordinary end
"""
WORKLOADS = {
    each.name: each
    for each in (every_kind(), shared_outputs(), transformer_of_images(), masked_tokens(), grouped_tokens())
}
GROUPED = {"fsdp": {"group_values": 500}}
"""Options that let FSDP gather layers of these small workloads by themselves."""


def trained(folder: Path, framework: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Train three steps of each job, one after the other; return losses and facts."""
    source = str(Path(steptime.__file__).parents[1])
    code = SESSIONS.format(source=source, jobs=json.dumps(jobs), folder=str(folder), framework=framework)
    python = str(interpreter_for(framework))
    run = subprocess.run([python, "-"], input=code, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads(line[6:]) for line in run.stdout.splitlines() if line.startswith("found ")]


Found = dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]]
"""Losses and facts without and with ``compile``, by strategy and workload."""


def in_strategies(folder: Path, framework: str, strategies: list[str], workloads: list[Workload]) -> Found:
    """Train each workload in each strategy without and with ``compile``, all in one process."""
    pairs = [(strategy, each) for strategy in strategies for each in workloads]
    jobs = [
        check_job(framework, strategy, each, batch=2, options={**GROUPED.get(strategy, {}), "compile": on})
        for strategy, each in pairs
        for on in ("no", "yes")
    ]
    for job in jobs:
        if "own" in job["workload"]:
            job["workload"]["own"]["dropout"] = True  # there is none to leave out, which a process does once
    found = trained(folder, framework, jobs)
    names = [(strategy, each.name) for strategy, each in pairs]
    return dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


@cache
def layers_of(workload: str) -> int:
    return sum(1 for layer in WORKLOADS[workload].to_json()["layers"] if layer["parameters"])


OWN = """
import torch

class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(20, 32)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32)) for _ in range(10)
        )
        self.last = torch.nn.Linear(32, 4)

    def forward(self, values):
        values = torch.tanh(self.first(values))
        for block in self.blocks:
            values = values + block(values)
        return self.last(values)

class WithLoss(Blocks):
    def forward(self, inputs, labels):
        outputs = super().forward(inputs)
        return {"loss": torch.nn.functional.cross_entropy(outputs, labels)}

def chain():
    return torch.nn.Sequential(
        torch.nn.Linear(20, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.Tanh(),
        torch.nn.Linear(32, 4)
    )

def blocks():
    return Blocks()

def with_loss():
    return WithLoss()

def pairs(rank, size, batch):
    generator = torch.Generator().manual_seed(rank)
    while True:
        inputs = torch.randn(batch, 20, generator=generator)
        yield inputs, inputs[:, :4].argmax(1)

def mappings(rank, size, batch):
    return ({"inputs": inputs, "labels": labels} for inputs, labels in pairs(rank, size, batch))
"""
BUILT = {"chain": "pairs", "blocks": "pairs", "with_loss": "mappings"}


IN_PYTORCH = ["single", "allreduce", "fsdp"]
IN_DEEPSPEED = ["allreduce", "zero2", "zero3"]


@pytest.fixture(scope="module")
def in_pytorch(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found of every workload in each strategy of PyTorch."""
    folder = tmp_path_factory.mktemp("pytorch")
    (folder / "mine.py").write_text(OWN)
    own = [
        own_workload(build, find_own_module(folder, f"mine:{build}", f"mine:{data}")) for build, data in BUILT.items()
    ]
    return in_strategies(folder, "pytorch", IN_PYTORCH, [*WORKLOADS.values(), *own])


@pytest.fixture(scope="module")
def in_deepspeed(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found of layers of every kind in each strategy of DeepSpeed."""
    return in_strategies(tmp_path_factory.mktemp("deepspeed"), "deepspeed", IN_DEEPSPEED, [WORKLOADS["every_kind"]])


@pytest.mark.parametrize("strategy", IN_PYTORCH)
def test_every_layer_is_in_the_graphs_of_each_strategy(in_pytorch: Found, strategy: str) -> None:
    """And what is trained stays the same."""
    for name in WORKLOADS:
        plain, compiled = in_pytorch[strategy, name]
        assert compiled["calls_captured"] > layers_of(name), name
        assert compiled["network_in_graphs"], name
        assert compiled["graph_breaks"] == 0, name
        assert relative_error(compiled["losses"], plain["losses"]) < 1e-5, name
        assert "calls_captured" not in plain


@pytest.mark.parametrize("strategy", IN_PYTORCH)
def test_every_layer_of_a_users_module_is_in_the_graphs_of_each_strategy(in_pytorch: Found, strategy: str) -> None:
    """Also of ten blocks of one class, more than torch compiles versions of one function."""
    for name in BUILT:
        plain, compiled = in_pytorch[strategy, name]
        assert compiled["network_in_graphs"], name
        assert relative_error(compiled["losses"], plain["losses"]) < 1e-5, name


@pytest.mark.framework("deepspeed")
@pytest.mark.parametrize("strategy", IN_DEEPSPEED)
def test_every_layer_is_in_the_graphs_inside_deepspeeds_engine(in_deepspeed: Found, strategy: str) -> None:
    """Stage 3 gathers the weights of each layer in hooks, at which graphs end."""
    plain, compiled = in_deepspeed[strategy, "every_kind"]
    assert compiled["network_in_graphs"]
    assert relative_error(compiled["losses"], plain["losses"]) < 1e-5
