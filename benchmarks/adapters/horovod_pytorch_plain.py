"""A plain loop of PyTorch with Horovod's optimizer; see race_plain.py for its arguments.

With one worker, Horovod is left out, as in the adapter's strategy ``single``.
"""

import json
import os
import sys
import time

import torch
from horovod_meeting import meet
from pytorch_plain import LeNet5, resnet50, sgd
from torch.nn import functional


def main(workload: str, batch: int, steps: int, warmup: int, meeting: list[str]) -> None:
    """Train and print the ends of the timed steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, _, side = workload.partition("@")
    module, shape, classes = (
        (LeNet5(), (1, 28, 28), 10) if name == "lenet5" else (resnet50(), (3, int(side), int(side)), 1000)
    )
    # Horovod takes no gradients with channels innermost; images may have them so nevertheless.
    layout = torch.contiguous_format if name == "lenet5" else torch.channels_last
    module.train()
    x = torch.randn(batch, *shape).to(memory_format=layout)
    t = torch.randint(0, classes, (batch,))
    optimizer = sgd(module)
    if meeting:
        meet(*meeting)
        import horovod.torch as hvd  # noqa: PLC0415 - one worker goes without

        hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=module.named_parameters())
        hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    ends, cpu = [], []
    for _ in range(warmup + steps):
        loss = functional.cross_entropy(module(x), t)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
        cpu.append(time.process_time())
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": cpu[-1] - cpu[warmup]}), flush=True)
    if meeting:
        hvd.shutdown()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
