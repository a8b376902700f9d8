#!/bin/sh
# torch 2.13.0: DDP sends all gradients of its first step as one bucket at the end of backward, whatever
# bucket_cap_mb; with static_graph those of the first two steps. Buckets of the wanted size come only then.
# Seen: eight layers of 1 MiB, buckets of 2 MiB, all-reduces per step: 1, 4, 4, 4; with static_graph 2 (one of them of
# a value per layer), 1, 4, 4; with find_unused_parameters 5 in each (one of a value per layer).
# One would guess that buckets are made when the network is wrapped, so that the first step differs by warm-up alone:
# but one or two steps measured to plan overlap or buckets show another program than the rest of the run.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import multiprocessing
import sys
import tempfile

LAYERS = 8
WIDTH = 512
ALL = LAYERS * WIDTH * WIDTH
BUCKET = ALL // 4
EXPECTED = {
    "defaults": [[ALL]] + [[BUCKET] * 4] * 3,
    "static_graph": [[LAYERS, ALL], [ALL]] + [[BUCKET] * 4] * 2,
    "find_unused_parameters": [[LAYERS] + [BUCKET] * 4] * 4,
}
"""Values in each all-reduce of each of four steps, fewest first."""


def run(rank, store):
    import torch
    from torch import distributed, nn
    from torch.profiler import ProfilerActivity, profile

    distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    changed = False
    for option, expected in EXPECTED.items():
        network = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        options = {} if option == "defaults" else {option: True}
        ddp = nn.parallel.DistributedDataParallel(network, bucket_cap_mb=2, **options)
        steps = []
        for _ in expected:
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
                ddp(torch.randn(4, WIDTH)).sum().backward()
            sizes = [each.input_shapes[0][0] for each in profiled.events() if each.name == "gloo:all_reduce"]
            steps.append(sorted(sizes))
        if rank == 0:
            print("torch", torch.__version__, option + ", values in each all-reduce by step:", *steps, flush=True)
        changed = changed or steps != expected
    distributed.barrier()
    sys.exit(changed)


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
