#!/bin/sh
# torch 2.13.0: DDP broadcasts buffers inside forward, in which a rank then waits for one that comes late;
# without, it waits in backward.
# Seen: forward of rank 1 takes 0.55 s beside a rank 0 that is 0.5 s late, and 0.05 s without
# broadcast_buffers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import multiprocessing
import sys
import tempfile
import time

LATE_S = 0.5
"""By which rank 0 comes late to each step."""


def run(rank, store, seconds):
    import torch
    from torch import distributed, nn

    distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    for broadcast in (True, False):
        network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        ddp = nn.parallel.DistributedDataParallel(network, broadcast_buffers=broadcast)
        spent = []
        for _ in range(4):
            if rank == 0:
                time.sleep(LATE_S)
            started = time.monotonic()
            outputs = ddp(torch.randn(4, 8))
            spent.append(time.monotonic() - started)
            outputs.sum().backward()
        if rank == 1:
            seconds.put(sorted(spent)[1])
            print("torch", torch.__version__, "broadcast_buffers", broadcast, "forward of rank 1: %.3f s" % sorted(spent)[1])
    distributed.barrier()


if __name__ == "__main__":
    store, seconds = tempfile.mktemp(), multiprocessing.Queue()
    pair = [multiprocessing.Process(target=run, args=(rank, store, seconds)) for rank in range(2)]
    for each in pair:
        each.start()
    with_buffers, without = seconds.get(), seconds.get()
    for each in pair:
        each.join()
    sys.exit(not (with_buffers > LATE_S / 2 > without))
PY
cd "$folder"
venv/bin/python -W ignore check.py
