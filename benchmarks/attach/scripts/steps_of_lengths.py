"""Steps of 1, 5 and 50 ms by one small network; the lines that the documentation of TOOL asks for are added, no others.

A step pauses, which takes no processor time, until it is as long as asked. Writes `RANK.json`: for each length, for how
long all threads of the process had a processor in a step, and the median of the training thread alone, in seconds.
"""

import contextlib
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = {"1 ms": (0.001, 800), "5 ms": (0.005, 400), "50 ms": (0.05, 80)}
FIRST, BATCH, WIDTH = 30, 4, 64
TOOL = os.environ.get("TOOL", "alone")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def median(values):
    """Return the middle one."""
    return sorted(values)[len(values) // 2]


def train(net, optimizer, length, steps, traced):
    """Train steps of ``length`` seconds; return both processor times of a step."""
    samples = torch.randn(BATCH * (steps + FIRST), WIDTH)
    thread = []
    for number, (x, y) in enumerate(DataLoader(TensorDataset(samples, samples), BATCH)):
        begin = time.perf_counter()
        if number == FIRST:
            process = time.process_time()
        if number >= FIRST:
            thread.append(time.thread_time())
        with traced():
            optimizer.zero_grad(set_to_none=True)
            nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
        time.sleep(max(0.0, length - (time.perf_counter() - begin)))
    of_thread = [after - before for before, after in pairwise(thread)]
    return [(time.process_time() - process) / steps, median(of_thread)]


def main():
    """Train."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if TOOL == "traceml-ai":
        import traceml_ai as traceml

        traceml.init(mode="auto")
    net = nn.Sequential(*[nn.Linear(WIDTH, WIDTH), nn.ReLU()] * 4)
    if world > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def traced():
        return traceml.trace_step(net) if TOOL == "traceml-ai" else contextlib.nullcontext()

    train(net, optimizer, 0.0, FIRST, traced)
    found = {name: train(net, optimizer, *settings, traced) for name, settings in STEPS.items()}
    Path(os.environ["OUT"], f"{rank}.json").write_text(json.dumps(found))
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
