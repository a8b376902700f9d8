"""DDP with the causes that CAUSES names; the lines that the documentation of TOOL asks for are added, no others.

Every batch takes 1 ms to load and every forward pass 10 ms. Causes: ``loader`` (30 ms a batch more in rank 1),
``backward`` (22 ms a step more in rank 1), ``checkpoint`` (rank 0 saves for 0.5 s, every 20th step), ``garbage`` (each
rank collects for 1 s, every 20th step, rank 1 ten steps behind rank 0), ``evaluation`` (rank 0 evaluates for 0.5 s,
every 20th step).
"""

import contextlib
import gc
import io
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS, EVERY, BATCH, WIDTH = 130, 20, 4, 256
CAUSES, TOOL = os.environ["CAUSES"].split("+"), os.environ.get("TOOL", "alone")
rank = int(os.environ["RANK"])


class Samples(Dataset):
    """Random samples."""

    def __len__(self):
        return 2 * BATCH * STEPS

    def __getitem__(self, index):
        time.sleep((0.001 + 0.03 * (rank == 1 and "loader" in CAUSES)) / BATCH)
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index)), index % 10


class LateGradient(torch.autograd.Function):
    """The identity, whose backward pass takes 22 ms."""

    @staticmethod
    def forward(_, x):
        return x.view_as(x)

    @staticmethod
    def backward(_, gradient):
        time.sleep(0.022)
        return gradient


class Net(nn.Module):
    """Four layers."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(WIDTH, WIDTH), nn.ReLU()] * 3)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        time.sleep(0.01)
        x = self.body(x)
        return self.head(LateGradient.apply(x) if rank == 1 and "backward" in CAUSES else x)


class Slow:
    """What takes a second to collect."""

    def __init__(self):
        self.cycle = self

    def __del__(self):
        time.sleep(1)


class SlowDisk(io.BytesIO):
    """A file that takes half a second to be written."""

    def __init__(self):
        super().__init__()
        self.wrote = False

    def write(self, data):
        time.sleep(0 if self.wrote else 0.5)
        self.wrote = True
        return super().write(data)


def save(net):
    """Write the weights to a slow disk."""
    torch.save(net.state_dict(), SlowDisk())


def evaluate(net):
    """Take ten batches without gradient."""
    net.eval()
    with torch.no_grad():
        for _ in range(10):
            time.sleep(0.04)
            net(torch.randn(BATCH, WIDTH))
    net.train()


def collect():
    """Leave a cycle, and have it collected."""
    Slow()
    gc.collect()


def behind_step(step, net):
    """Do what is planted between two steps."""
    if rank == 0 and "checkpoint" in CAUSES and step % EVERY == 15:
        save(net)
    if rank == 0 and "evaluation" in CAUSES and step % EVERY == 5:
        evaluate(net.module)
    if "garbage" in CAUSES and step % EVERY == 10 * rank:
        collect()


def main():
    """Train."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if TOOL == "traceml-ai":
        import traceml_ai as traceml

        traceml.init(mode="auto")
    dist.init_process_group("gloo")
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    samples = Samples()
    loader = DataLoader(samples, batch_size=BATCH, sampler=DistributedSampler(samples, shuffle=False))
    recorded = contextlib.nullcontext()
    if TOOL == "gpuprof":
        import gpuprof

        recorded = gpuprof.profile("planted")
    with recorded as profile:
        if TOOL == "gpuprof":
            profile.instrument_ddp(net)
        for step, (x, y) in enumerate(loader):
            with traceml.trace_step(net) if TOOL == "traceml-ai" else contextlib.nullcontext():
                optimizer.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
            behind_step(step, net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
