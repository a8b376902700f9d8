"""A plain DeepSpeed training loop with the settings of DeepSpeed's example; see race_plain.py for its arguments.

The stage of ZeRO is that of the strategy: 0 for ``single`` and ``allreduce``, 1 to 3 for ``zero1`` to ``zero3``.
"""

import json
import os
import sys
import time

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from pytorch_plain import LeNet5, resnet50, sgd
from torch.nn import functional


def main(workload: str, batch: int, steps: int, warmup: int, meeting: list[str]) -> None:
    """Train and print the ends of the timed steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, _, side = workload.partition("@")
    if name == "lenet5":
        module, shape, classes = LeNet5(), (1, 28, 28), 10
    else:
        module, shape, classes = resnet50(), (3, int(side), int(side)), 1000
    stage = int(os.environ.get("RACE_STRATEGY", "").partition("zero")[2] or 0)
    layout = torch.contiguous_format if name == "lenet5" else torch.channels_last
    x = torch.randn(batch, *shape).to(memory_format=layout)
    t = torch.randint(0, classes, (batch,))
    rank, workers, address = meeting or ("0", "1", "127.0.0.1:0")
    host, port = address.split(":")
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=workers, MASTER_ADDR=host, MASTER_PORT=port)
    # Serves inference only, and would have to be compiled first.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    engine, *_ = deepspeed.initialize(
        model=module.train(),
        optimizer=sgd(module),
        config={
            "train_micro_batch_size_per_gpu": batch,
            "gradient_clipping": 0.0,
            "steps_per_print": 2**31,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": stage,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "allgather_bucket_size": 50000000,
                "reduce_bucket_size": 50000000,
            },
        },
    )
    if not stage:
        module.to(memory_format=layout)  # what DeepSpeed broadcasts at the beginning has to be contiguous
    ends, cpu = [], []
    for _ in range(warmup + steps):
        loss = functional.cross_entropy(engine(x), t)
        engine.backward(loss)
        engine.step()
        ends.append(time.monotonic())
        cpu.append(time.process_time())
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": cpu[-1] - cpu[warmup]}), flush=True)
    engine.destroy()
    deepspeed.comm.destroy_process_group()
    # Now and then gloo's threads outlive the group and abort the process at its exit.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
