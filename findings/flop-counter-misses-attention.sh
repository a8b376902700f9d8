#!/bin/sh
# torch 2.13.0: FlopCounterMode counts no operation for attention and nn.LSTM on processors, and says nothing.
# The same attention is counted in full on the device "meta" or with SDPBackend.MATH, and nn.GRU of the same
# sizes is counted: a zero among right numbers is easy to miss, and a rate made of it is too low.
# Seen: attention 0, on "meta" 67108864, with MATH 67108864; LSTM 0, GRU 6291456.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def counted(call, *inputs):
    with FlopCounterMode(display=False) as counter:
        call(*inputs)
    return counter.get_total_flops()


def attention(values):
    nn.functional.scaled_dot_product_attention(values, values, values)


def by_matrices(values):
    with sdpa_kernel(SDPBackend.MATH):
        attention(values)


values, words = torch.randn(2, 4, 256, 32), torch.randn(16, 8, 64)
seen = {
    "attention": counted(attention, values),
    "attention on meta": counted(attention, values.to("meta")),
    "attention with MATH": counted(by_matrices, values),
    "LSTM": counted(nn.LSTM(64, 64), words),
    "GRU": counted(nn.GRU(64, 64), words),
}
print("torch", torch.__version__, "FlopCounterMode", seen)
# Two products of matrices, each 2 x 4 x 256 x 256 x 32 multiplications and as many additions.
whole = 2 * 2 * 2 * 4 * 256 * 256 * 32
assert seen["attention"] == seen["LSTM"] == 0 < seen["GRU"], seen
assert seen["attention on meta"] == seen["attention with MATH"] == whole, (seen, whole)
PY
cd "$folder"
venv/bin/python -W ignore check.py
