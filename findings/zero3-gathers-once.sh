#!/bin/sh
# deepspeed 0.19.8, defaults: ZeRO 3 gathers all large weights in one call ahead of the forward pass, none in
# backward, and small arrays one by one in step().
# It wants a C++ compiler, since the engine builds an operator at its start.
# Seen: five layers of 512x512: forward [1310720], backward [], step [512, 512, 512, 512, 512].
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 deepspeed==0.19.8
cat > "$folder/check.py" <<'PY'
import multiprocessing
import os
import sys
import tempfile


def run(rank, store):
    os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE="2")
    import deepspeed
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.manual_seed(0)
    deepspeed.init_distributed(
        "gloo", auto_mpi_discovery=False, verbose=False, init_method="file://" + store, rank=rank, world_size=2
    )
    network = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(5)))
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 3},
    }
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    engine = deepspeed.initialize(model=network, optimizer=optimizer, config=settings)[0]

    def step():
        with record_function("phase forward"):
            loss = engine(torch.randn(4, 512)).square().mean()
        with record_function("phase backward"):
            engine.backward(loss)
        with record_function("phase step"):
            engine.step()

    step()
    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        step()
    events = list(profiled.events())
    spans = {each.name[6:]: each.time_range for each in events if each.name.startswith("phase ")}
    gathers = {phase: [] for phase in spans}
    for each in events:
        if each.name == "c10d::_allgather_base_":
            for phase, span in spans.items():
                if span.start <= each.time_range.start <= span.end:
                    gathers[phase].append(each.input_shapes[0][0])
    if rank == 0:
        print("deepspeed", deepspeed.__version__, "values of each gather, by phase:", gathers, flush=True)
    right = gathers == {"forward": [5 * 512 * 512], "backward": [], "step": [512] * 5}
    torch.distributed.barrier()
    os._exit(not right)


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
