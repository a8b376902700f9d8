#!/bin/sh
# torch 2.13.0: torch.profiler with_flops counts a convolution's forward pass alone, but all of a linear layer,
# whose backward pass is made of mm.
# The sum over a step thus is whole for a transformer and a third for a network of convolutions, though
# both have their backward pass in the same trace.
# Seen: linear layer 786432 of 786432 operations, convolution 4718592 of 14155776.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def counted(layer, inputs):
    """Return the operations of one pass forward and backward: by torch.profiler, and by FlopCounterMode."""
    inputs.requires_grad_()
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as seen:
        layer(inputs).sum().backward()
    names = {each.name for each in seen.events()}
    assert names & {"AddmmBackward0", "ConvolutionBackward0"}, names
    with FlopCounterMode(display=False) as counter:
        layer(inputs).sum().backward()
    return sum(each.flops or 0 for each in seen.key_averages()), counter.get_total_flops()


linear = counted(nn.Linear(64, 64), torch.randn(32, 64))
convolution = counted(nn.Conv2d(16, 16, 3, padding=1), torch.randn(4, 16, 16, 16))
print("torch", torch.__version__, "profiler counted of a linear layer %d of %d" % linear, "operations, of a convolution %d of %d" % convolution)
assert linear[0] == linear[1] and 3 * convolution[0] == convolution[1], (linear, convolution)
PY
cd "$folder"
venv/bin/python -W ignore check.py
