#!/bin/sh
# torch 2.13.0: DDP decides in forward whether gradients are exchanged; no_sync around the backward pass alone
# changes nothing.
# Seen: own gradients (0 and 1) with no_sync around both passes, the mean 0.5 with it around backward alone.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import multiprocessing
import sys
import tempfile


def run(rank, store):
    import torch
    from torch import distributed, nn

    distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)

    def gradient(forward_inside):
        torch.manual_seed(0)
        ddp = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
        inputs = torch.full((1, 1), float(rank))  # the own gradient is the rank, the mean is a half
        if forward_inside:
            with ddp.no_sync():
                ddp(inputs).sum().backward()
        else:
            loss = ddp(inputs).sum()
            with ddp.no_sync():
                loss.backward()
        return float(ddp.module.weight.grad)

    around_both, around_backward = gradient(True), gradient(False)
    print("torch", torch.__version__, "rank", rank, "gradient with no_sync around both passes", around_both,
          "around backward alone", around_backward)
    assert (around_both, around_backward) == (float(rank), 0.5)
    distributed.barrier()


if __name__ == "__main__":
    store = tempfile.mktemp()
    pair = [multiprocessing.Process(target=run, args=(rank, store)) for rank in range(2)]
    for each in pair:
        each.start()
    for each in pair:
        each.join()
    sys.exit(any(each.exitcode for each in pair))
PY
cd "$folder"
venv/bin/python -W ignore check.py
