#!/bin/sh
# torch 2.13.0: reduce_scatter_tensor over gloo is an all-reduce of the whole: sharded gradients cost there what
# DDP's do.
# Seen: [("gloo:all_reduce", [[1000]])] for 1000 values in, 500 out.
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
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile

    distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        distributed.reduce_scatter_tensor(torch.zeros(500), torch.ones(1000))
    events = [(each.name, each.input_shapes) for each in seen.events() if each.name.startswith("gloo:")]
    if rank == 0:
        print("torch", torch.__version__, "reduce_scatter_tensor of 1000 values over gloo ran", events)
    assert events == [("gloo:all_reduce", [[1000]])], events
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
