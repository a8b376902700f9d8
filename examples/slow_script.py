"""A small DistributedDataParallel script that is slower than it need be; `steptime attach` says where.

::

    steptime attach -- torchrun --nproc-per-node 2 examples/slow_script.py

What makes it slow: its loader works while the step waits, rank 1 draws a histogram in its forward pass, rank 0
evaluates alone, and after each update a summary is written to a slow file system.
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS, EVERY, WIDTH = 60, 20, 256


class Pictures(Dataset[tuple[Tensor, int]]):
    """Random samples that take two milliseconds each to decode."""

    def __len__(self) -> int:
        return 8 * STEPS * dist.get_world_size()

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(0.002)
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index)), index % 10


class Net(nn.Module):
    """Two layers."""

    def __init__(self, *, watched: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
        self.watched = watched

    def forward(self, x: Tensor) -> Tensor:
        if self.watched:
            draw_histogram(x)
        logits: Tensor = self.layers(x)
        return logits


def draw_histogram(x: Tensor) -> None:
    """Take as long as drawing one does."""
    x.histc(100)
    time.sleep(0.012)


def write_summary() -> None:
    """Take as long as writing to a slow file system does."""
    time.sleep(0.008)


def evaluate(net: nn.Module) -> None:
    """Evaluate forty batches."""
    with torch.no_grad():
        for _ in range(40):
            net(torch.randn(8, WIDTH))
            time.sleep(0.01)


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = DistributedDataParallel(Net(watched=rank == 1))
    optimizer = torch.optim.AdamW(net.parameters())
    sampler = DistributedSampler(Pictures())
    for number, (x, y) in enumerate(DataLoader(sampler.dataset, batch_size=8, sampler=sampler), 1):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        write_summary()
        if number % EVERY == 0 and rank == 0:
            evaluate(net.module)
    if rank == 0:
        print(f"loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
