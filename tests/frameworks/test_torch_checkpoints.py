"""Checkpoints of the frameworks over torch: what is kept comes back, and nothing that is read runs code."""

from pathlib import Path
from typing import Any

import pytest
from launching import printed_in

pytestmark = pytest.mark.framework("pytorch")

BEGIN = """
import io
import numpy, torch
from steptime.libraries.torch import checkpoint
from steptime.libraries.torch.devices import Cpu
from steptime.libraries.torch.strategy import TorchStrategy

class Built:
    module = torch.nn.Linear(3, 2)

def strategy(scale):
    made = TorchStrategy({"precision": "fp16", "optimizer": {}, "options": {}}, None, Cpu())
    made.optimizer = torch.optim.SGD(Built.module.parameters(), 0.1, momentum=0.9)
    made.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    made.update(Built.module(torch.ones(1, 3)).sum())
    return made

def through_a_file(arrays):
    numpy.savez(place, **arrays)
    with numpy.load(place, allow_pickle=False) as file:
        return dict(file)

class Planted:
    def __reduce__(self):
        return os.mkdir, (place + ".executed",)

def pickled():
    file = io.BytesIO()
    torch.save(Planted(), file)
    return numpy.frombuffer(file.getvalue(), dtype=numpy.uint8)
"""


def in_torch(tmp_path: Path, code: str) -> Any:
    """Run ``code`` behind ``BEGIN`` where PyTorch is imported; return the JSON that it prints last."""
    return printed_in("pytorch", BEGIN + code, place=str(tmp_path / "state.npz"))


def test_the_scale_of_half_precision_goes_on_where_it_was(tmp_path):
    code = """
first, second = strategy(512.0), strategy(2.0)
first.scaler.update(1024.0)
second.set_state(Built, through_a_file(first.state(Built)))
print(json.dumps([first.scaler.state_dict(), second.scaler.state_dict()]))
"""
    first, second = in_torch(tmp_path, code)

    assert first == second
    assert first["scale"] == 1024.0


def test_a_checkpoint_from_somebody_else_runs_nothing(tmp_path):
    """The key under which older versions kept the pickled state of torch's scaler."""
    code = """
made = strategy(512.0)
state = {name: array for name, array in made.state(Built).items() if not name.startswith("scaler")}
try:
    made.set_state(Built, through_a_file(dict(state, scaler=pickled())))
except Exception as error:
    print(json.dumps(type(error).__name__))
"""
    in_torch(tmp_path, code)

    assert not (tmp_path / "state.npz.executed").exists()


def test_nested_tensors_come_back_with_their_layout_and_type(tmp_path):
    code = """
images = torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last)
value = {
    "state": {0: {"step": torch.tensor(3.0), "images": images, "half": torch.ones(3, dtype=torch.bfloat16) / 3}},
    "groups": [{"betas": (0.9, 0.999), "params": [0, 1], "fused": None, "foreach": True, "largest": float("inf")}],
}
found = checkpoint.nested_value("engine", through_a_file(checkpoint.nested_state("engine", value)))
old, new = value["state"][0], found["state"][0]
print(json.dumps({
    "plain": found["groups"] == value["groups"],
    "equal": [bool(torch.equal(old[name], new[name])) for name in old],
    "types": [str(new[name].dtype) for name in old],
    "strides": [list(old["images"].stride()), list(new["images"].stride())],
}))
"""
    found = in_torch(tmp_path, code)

    assert found["plain"]
    assert found["equal"] == [True, True, True]
    assert found["types"] == ["torch.float32", "torch.float32", "torch.bfloat16"]
    assert found["strides"][0] == found["strides"][1]


def test_an_object_is_no_part_of_a_checkpoint(tmp_path):
    code = """
try:
    checkpoint.nested_state("engine", {"hook": [Planted()]})
except TypeError as error:
    print(json.dumps(str(error)))
"""
    assert "no Planted" in in_torch(tmp_path, code)
