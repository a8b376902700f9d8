"""A user's own module in PyTorch: raced and checked against one process, and what is said of one that is wrong."""

import json
import subprocess
from pathlib import Path

import pytest
from launching import interpreter_for
from program import steptime

import steptime as package
from steptime.analysis.summary import summarise
from steptime.results.record_kinds import TIMING
from steptime.results.records import Launch
from steptime.results.store import Store

MODULE = """\
import itertools, os
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

def normed():
    return torch.nn.Sequential(
        torch.nn.Linear(20, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(32, 4)
    )

def unsynchronised():
    made = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    ignore = torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(made, ["2.bias"])
    return made

def loader(rank, size, batch):
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(40 * batch, 20, generator=generator)
    samples = torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))
    return torch.utils.data.DataLoader(samples, batch_size=batch, shuffle=True, drop_last=True)

def pairs(batch, samples=None, kind=torch.float32):
    inputs = torch.zeros(batch if samples is None else samples, 20, dtype=kind)
    return inputs, torch.zeros(len(inputs), dtype=torch.int64)

def empty(rank, size, batch):
    return iter(())

def short(rank, size, batch):
    return [pairs(batch), pairs(batch, batch - 1)]

def alone(rank, size, batch):
    return [pairs(batch)[0]]

def double(rank, size, batch):
    return [pairs(batch, kind=torch.float64)]

def number(rank, size, batch):
    return 7

def wrong(rank, size, batch):
    yield {}["labels"]

def once(rank, size, batch):
    yield pairs(batch)

def nothing():
    return torch.nn.ReLU()

def no_module():
    return {"weights": 3}
"""
STUDY = """\
workloads: {{name: mine, module: mine:{build}, data: mine:loader}}
frameworks: pytorch
strategies: allreduce
workers: 2
batch_per_worker: 16
launches: {{min: 1, max: 1}}
seconds_per_launch: 0.2s
equivalence: {{steps: 3}}
"""
pytestmark = pytest.mark.framework("pytorch")


def raced(folder: Path, build: str, check: int) -> Store:
    interpreter_for("pytorch")
    (folder / "mine.py").write_text(MODULE)
    (folder / "study.yaml").write_text(STUDY.format(build=build))
    steptime("run", "study.yaml", "-o", "results", cwd=folder, check=check)
    return Store.open(folder / "results")


def launches(store: Store) -> list[Launch]:
    (trial,) = store.trials()
    return store.records(TIMING, trial.id)


@pytest.fixture(scope="module")
def normed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return raced(tmp_path_factory.mktemp("normed"), "normed", 0)


def test_a_module_with_batch_normalisation_passes_and_is_explained(normed):
    (check,) = normed.equivalence()
    assert check.passed, check.reason
    assert check.explanation.startswith("each worker normalises over its own batch (1): 2 workers with batches of 8")


def test_the_explanation_is_a_note_of_the_report(normed):
    (trial,) = summarise(normed).trials
    assert any("normalises over its own batch" in flag for flag in trial.flags)


def test_parameters_and_bytes_of_gradients_are_read_from_the_module(normed):
    (launch,) = launches(normed)
    own = launch.workers[0].facts["own"]
    values = 20 * 32 + 32 + 2 * 32 + 32 * 4 + 4
    assert (own["parameters"], own["gradient_bytes"]) == (values, 4 * values)


def test_flops_are_those_of_the_products_forward_and_backward(normed):
    (launch,) = launches(normed)
    first, last = 2 * 20 * 32, 2 * 32 * 4
    assert launch.workers[0].facts["own"]["flop_per_sample"] == 3 * (first + last) - first  # inputs have no gradient


def test_workers_train_on_batches_of_their_own(normed):
    (launch,) = launches(normed)
    one, other = (worker.batches for worker in launch.workers)
    assert one[0][:2] == other[0][:2] == (1, 16)
    assert one[0][2] != other[0][2]


def test_losses_behind_timed_steps_are_those_of_a_replay(normed):
    (trial,) = normed.trials()
    (launch,) = launches(normed)
    replay = normed.replays(trial.id)[0]
    kept = dict(launch.workers[0].losses)
    assert [kept[step] for step in replay.steps if step in kept] == pytest.approx(
        [losses[0] for step, losses in zip(replay.steps, replay.losses, strict=True) if step in kept], rel=1e-4
    )


@pytest.mark.costly
def test_a_parameter_that_is_not_synchronised_is_refused_by_its_name(tmp_path):
    store = raced(tmp_path, "unsynchronised", 1)
    (check,) = store.equivalence()
    assert not check.passed
    assert "the gradient of 2.bias in round 1" in check.reason


ASKED = """\
import hashlib, json, sys
sys.path[:0] = sys.argv[1:3]
from steptime.libraries.torch.own_module import TorchOwnWorkload
from steptime.worker.own_module import OwnLoader

said = {}
for name, build, data in json.loads(sys.argv[3]):
    own = {"folder": sys.argv[2], "build": "mine:" + build, "data": "mine:" + data, "loss": None, "dropout": True}
    with open(sys.argv[2] + "/mine.py", "rb") as file:
        own["files"] = [["mine.py", hashlib.sha256(file.read()).hexdigest()]]
    try:
        built = TorchOwnWorkload({"workload": {"own": own}, "framework": "pytorch", "seed": 0})
        batches = iter(OwnLoader(built, 1, 2, 4))
        said[name] = [len(next(batches)) for _ in range(3)]
    except ValueError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
CASES = {
    "empty": ("normed", "empty", "mine:empty(rank=1, size=2, batch=4) ended without a batch"),
    "short": ("normed", "short", "has 3 samples in inputs, and 4 are asked for"),
    "alone": ("normed", "alone", "is a Tensor; give (inputs, targets) or a mapping"),
    "double": ("normed", "double", "has float64 in inputs, and weights are float32; add .float()"),
    "number": ("normed", "number", "returned int, not an iterable of batches"),
    "wrong": ("normed", "wrong", "failed with KeyError: 'labels' ("),
    "nothing": ("nothing", "loader", "a module without a parameter to train"),
    "no module": ("no_module", "loader", "returned dict, not a torch.nn.Module"),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "mine.py").write_text(MODULE)
    asked = [(name, build, data) for name, (build, data, _) in CASES.items()] + [("once", "normed", "once")]
    source = str(Path(package.__file__).parents[1])
    command = [str(interpreter_for("pytorch")), "-c", ASKED, source, str(folder), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_a_loader_or_module_that_cannot_be_used_is_told_what_is_wrong(said, name):
    assert CASES[name][2] in said[name]


@pytest.mark.costly
def test_a_loader_that_ends_is_begun_anew(said):
    assert said["once"] == [2, 2, 2]
