#!/bin/sh
# torch 2.13.0: torch.compile of a function that calls a DDP module puts the loss alone into its graphs;
# compile first, wrap then.
# Seen: 1 operation in graphs where the function around DDP is compiled, 10 of 10 where the network inside is.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import tempfile

import torch
from torch import distributed, nn
from torch._dynamo.utils import counters

distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)


def operations(wrap):
    """Return how many operations torch.compile has in its graphs after two steps of what `wrap` makes of a network."""
    torch._dynamo.reset()
    counters.clear()
    network = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(16, 16), nn.ReLU())))
    loss_of = wrap(network)
    for _ in range(2):
        loss_of(torch.randn(4, 16), torch.zeros(4, dtype=torch.int64)).backward()
    return counters["stats"]["calls_captured"]


def whole(network):
    ddp = nn.parallel.DistributedDataParallel(network)
    return torch.compile(lambda inputs, targets: nn.functional.cross_entropy(ddp(inputs), targets), backend="eager")


def inside(network):
    ddp = nn.parallel.DistributedDataParallel(torch.compile(network, backend="eager"))
    return lambda inputs, targets: nn.functional.cross_entropy(ddp(inputs), targets)


seen = operations(whole), operations(inside)
print("torch", torch.__version__, "operations in graphs: function around DDP %d, DDP around the network %d" % seen)
assert seen == (1, 10), seen
PY
cd "$folder"
venv/bin/python -W ignore check.py
