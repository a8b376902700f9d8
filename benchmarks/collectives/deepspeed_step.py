"""Count the collectives of a step of DeepSpeed's engine with torch's profiler, by stage of ZeRO and setting.

    PYTHONPATH=src PYTHON benchmarks/collectives/deepspeed_step.py WORKLOAD.json | grep -v "^.20"

PYTHON is that of the environment `deepspeed`; the workload is one of `Workload.to_json`, of flat inputs. Two processes
over gloo take three steps, of which the last is profiled on the first. A row is one collective of one phase.
"""

import csv
import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter

STAGES = {"allreduce": 0, "zero1": 1, "zero2": 2, "zero3": 3}
MILLIONS = {"allgather_bucket_size": 4_000_000, "reduce_bucket_size": 4_000_000}
SETTINGS = [
    *((strategy, clip, parts, {}) for strategy in STAGES for clip, parts in ((0.0, 1), (1.0, 1), (0.0, 2))),
    *((strategy, 0.0, 1, MILLIONS) for strategy in STAGES),
    ("zero2", 0.0, 1, {"reduce_scatter": False}),
    ("zero3", 0.0, 1, {"stage3_prefetch_bucket_size": 4_000_000}),
    ("zero3", 0.0, 1, {"stage3_prefetch_bucket_size": 0}),
    ("zero3", 0.0, 1, {"stage3_max_reuse_distance": 0}),
    ("zero3", 0.0, 1, {"stage3_max_live_parameters": 0}),
    ("zero3", 0.0, 1, {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}),
    (
        "zero3",
        0.0,
        1,
        {"stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0},
    ),
]
_NAMES = {"gloo:all_reduce": "all_reduce", "gloo:all_gather": "all_gather", "gloo:broadcast": "broadcast"}
_HALF = {"all_gather": 2}
"""Of what is gathered, gloo's event has the part of one of the two workers."""
_STEPS = 3
_BATCH = 8


def count(rank, workload, store, setting, out):
    """Train, and write ``[phase, collective, calls, values]`` of the last step."""
    os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    import deepspeed
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from steptime.frameworks.deepspeed.strategies import engine_settings
    from steptime.libraries.torch.network import TorchWorkload

    strategy, clip, parts, changed = setting
    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        "gloo", auto_mpi_discovery=False, verbose=False, init_method="file://" + store, rank=rank, world_size=2
    )
    module = TorchWorkload(workload).module
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    job = {
        "options": {"mixed_precision": "autocast", "bucket_values": 50_000_000},
        "precision": "fp32",
        "batch_per_worker": _BATCH,
        "accumulation": parts,
        "optimizer": {"clip_norm": clip} if clip else {},
    }
    configuration = engine_settings(job, STAGES[strategy])
    configuration["zero_optimization"].update(changed)
    engine = deepspeed.initialize(model=module, optimizer=optimizer, config=configuration)[0]

    def step():
        for part in range(parts):
            inputs = torch.randn(_BATCH // parts, *workload["input_shape"])
            targets = torch.zeros(len(inputs), dtype=torch.int64)
            with record_function(f"phase forward {part}"):
                loss = torch.nn.functional.cross_entropy(engine(inputs), targets)
            with record_function(f"phase backward {part}"):
                engine.backward(loss)
            with record_function(f"phase step {part}"):
                engine.step()

    for _ in range(_STEPS - 1):
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        step()
    if rank == 0:
        events = list(profiled.events())
        phases = [(each.time_range, each.name[6:]) for each in events if each.name.startswith("phase ")]
        calls, values = Counter(), Counter()
        for each in events:
            if each.name.startswith("gloo:"):
                (phase,) = [name for span, name in phases if span.start <= each.time_range.start <= span.end]
                size = 1
                for axis in each.input_shapes[0]:
                    size *= axis
                kind = phase, _NAMES[each.name]
                calls[kind] += 1
                values[kind] += size * _HALF.get(kind[1], 1)
        with open(out, "w") as file:
            json.dump([[*kind, calls[kind], values[kind]] for kind in calls], file)
    os._exit(0)  # threads of gloo may abort an ordinary end


def main():
    """Print the table."""
    with open(sys.argv[1]) as file:
        workload = json.load(file)
    rows = csv.writer(sys.stdout)
    rows.writerow(
        [
            "workload",
            "strategy",
            "clip_norm",
            "micro_batches",
            "settings",
            "phase",
            "micro_batch",
            "collective",
            "calls",
            "values",
        ]
    )
    processes = multiprocessing.get_context("fork")
    for setting in SETTINGS:
        strategy, clip, parts, changed = setting
        with tempfile.TemporaryDirectory() as folder:
            out, store = os.path.join(folder, "out.json"), os.path.join(folder, "store")
            pair = [processes.Process(target=count, args=(rank, workload, store, setting, out)) for rank in range(2)]
            for each in pair:
                each.start()
            for each in pair:
                each.join()
            with open(out) as file:
                counted = json.load(file)
        shown = " ".join(f"{name}={value}" for name, value in changed.items())
        for phase, collective, calls, values in counted:
            rows.writerow([workload["name"], strategy, clip, parts, shown, *phase.split(), collective, calls, values])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
