#!/bin/sh
# torch 2.13.0, FSDP2 (fully_shard) on processors: gradients are averaged over gloo, but once set_gradient_divide_factor
# sets another factor than the number of processes, also 1 (no division at all), the backward pass asks for
# ReduceOp.PREMUL_SUM, which gloo does not have. torchtitan 0.2.2 sets 1 in its models, since it scales the loss itself:
# its data parallel jobs train where NCCL is, and fail in the first backward pass elsewhere.
# Seen: 2 processes, gradient 1.5 on both without a factor and with 2.0; with 1.0 a RuntimeError in backward().
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import torch
import torch.distributed
from torch.distributed.fsdp import fully_shard

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
seen = []
for factor in (None, 1.0, 2.0):
    layer = torch.nn.Linear(4, 2, bias=False)
    fully_shard(layer)
    if factor is not None:
        layer.set_gradient_divide_factor(factor)
    try:
        layer(torch.full((1, 4), 1.0 + rank)).sum().backward()
        seen.append(sorted(set(layer.weight.grad.to_local().flatten().tolist())))
    except RuntimeError as error:
        seen.append(str(error))
if rank == 0:
    print(f"torch {torch.__version__}: without a factor {seen[0]}; 1.0: {seen[1]}; 2.0: {seen[2]}")
assert (seen[0], seen[2]) == ([1.5], [1.5]), seen
assert "PREMUL_SUM" in seen[1], seen
torch.distributed.destroy_process_group()
PY
"$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/check.py" 2>"$folder/errors" || {
    cat "$folder/errors"
    exit 1
}
