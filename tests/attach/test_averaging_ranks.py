"""Over how many ranks FSDP of real PyTorch averages, by modules that are wrapped in a group without peers."""

import json
import subprocess

import pytest
from launching import interpreter_for

from steptime.attach.folder import write_hook
from steptime.attach.pytorch.weights import PARAMETERS, drawn

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from steptime_attach.pytorch.weights import averaging_ranks

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))

def halves():
    return parallelize_module(net(), grid["inner"], {"0": ColwiseParallel()})

def net():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

def with_layers(**settings):
    made = net()
    fully_shard(made[0], **settings)
    return fully_shard(made, **settings)

widths = {
    "FSDP2": fully_shard(net(), mesh=init_device_mesh("cpu", (4,))),
    "FSDP2 of layers": with_layers(mesh=init_device_mesh("cpu", (4,))),
    "hybrid": fully_shard(net(), mesh=grid),
    "with tensor parallel": fully_shard(halves(), mesh=grid["outer"]),
    "FSDP1": FullyShardedDataParallel(net(), device_id=torch.device("cpu")),
    "FSDP1 of halves": FullyShardedDataParallel(net(), grid["inner"].get_group(), device_id=torch.device("cpu")),
    "tensor parallel": halves(),
    "plain": net(),
}
print(json.dumps({name: averaging_ranks(module) for name, module in widths.items()}))
"""
WIDTHS = {
    "FSDP2": 4,
    "FSDP2 of layers": 4,
    "hybrid": 4,
    "with tensor parallel": 2,
    "FSDP1": 4,
    "FSDP1 of halves": 2,
    "tensor parallel": 0,
    "plain": 0,
}


@pytest.mark.framework("pytorch")
def test_wrapped_modules_are_averaged_over_the_ranks_of_their_groups(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [interpreter_for("pytorch"), "script.py", write_hook(tmp_path / "hook")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == WIDTHS


@pytest.mark.parametrize("layers", [2, 5, 12, 16, 24, 96])
@pytest.mark.parametrize("repeated", [4, 9, 12, 16])
def test_weights_that_are_looked_at_are_of_every_kind_that_layers_repeat(layers, repeated):
    kinds = {at % repeated for at in drawn(layers * repeated)}
    assert len(kinds) > repeated // 3
    assert len(drawn(layers * repeated)) == min(PARAMETERS, layers * repeated)
