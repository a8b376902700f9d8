"""A script of PyTorch with one of further causes planted: ``python planted_further_script.py CAUSE [heavy]``.

``clean`` has none. Of input: ``store`` waits 2 ms for each sample, ``files`` opens a file for each, ``collate`` adds a
slow ``collate_fn``, ``augment`` rotates each sample, ``store-rank`` waits on rank 1 alone. After an update: ``log``
has a line on the disk, ``metric`` counts in Python, ``collect`` collects garbage, ``sleep`` waits, ``norm`` takes the
norm of each weight, ``average`` keeps one of each weight, ``save`` saves, ``save-other`` every other time,
``save-rank`` on rank 0 alone. Of the exchange: ``buckets`` of 1 KiB, ``metrics`` reduces a hundred numbers one by one,
``gather`` gathers all predictions as objects, ``buffers`` sends 8 MiB of buffers, ``twice`` reduces each gradient
again, ``uneven-batch`` gives rank 1 more samples. ``heavy`` computes so much that the exchange of a clean step is
little. By torchrun it trains on several ranks.
"""

import gc
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

CAUSE, HEAVY = sys.argv[1], "heavy" in sys.argv[2:]
STEPS, BATCH, WIDTH, TIMES = (80, 256, 384, 6) if HEAVY else (120, 8, 768, 1)
OUT = Path(os.environ.get("OUT", "."))
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
SAMPLE = OUT / "sample.pt"
SIDE = 16
AVERAGES = {}


class Samples(Dataset):
    """Pictures by chance, each got in the way of the cause."""

    def __init__(self, count):
        self.count = count
        self.pixels = torch.rand(256)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        pixels = self.pixels
        if CAUSE == "store" or (CAUSE == "store-rank" and RANK == 1):
            time.sleep(0.002)
        if CAUSE == "files":
            pixels = torch.load(SAMPLE)
        if CAUSE == "augment":
            picture = pixels.view(SIDE, SIDE)
            for times in range(60):
                picture = torch.rot90(picture, times % 4).flip(0)
            pixels = picture.reshape(-1).contiguous()
        return pixels, index % 10


def collate(samples):
    """Sum each picture in Python before it is put into the batch."""
    if CAUSE == "collate":
        for pixels, _ in samples:
            sum(float(value) for value in pixels)
    return default_collate(samples)


class Net(nn.Module):
    """Three layers, of which a heavy net uses the middle one several times, and buffers that may be large."""

    def __init__(self):
        super().__init__()
        middle = [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        self.layers = nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), *middle * TIMES, nn.Linear(WIDTH, 10))
        if CAUSE == "buffers":
            self.register_buffer("large", torch.zeros(2 << 20))

    def forward(self, x):
        return self.layers(x)


def after_backward(net):
    """Do what the cause does between the backward pass and the update."""
    if CAUSE == "twice":
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= WORLD
    if CAUSE == "metrics":
        for number in range(100):
            dist.all_reduce(torch.tensor(float(number)))


def after_update(net, optimizer, y, step):
    """Do what the cause does after an update."""
    if CAUSE == "log":
        with (OUT / f"log-{RANK}.txt").open("a") as file:
            for _ in range(5):
                file.write(f"{y[0]}\n")
                file.flush()
                os.fsync(file.fileno())
    if CAUSE == "metric":
        sum(value > 0 for parameter in net.parameters() for value in parameter.detach().flatten()[:5000].tolist())
    if CAUSE == "collect":
        gc.collect()
    if CAUSE == "sleep":
        time.sleep(0.01)
    if CAUSE == "norm":
        for _ in range(20):
            [parameter.norm().item() for parameter in net.parameters()]
    if CAUSE == "average":
        for parameter in net.parameters():
            average = AVERAGES.setdefault(id(parameter), parameter.detach().clone())
            mixed = torch.tensor([0.9 * old + 0.1 * new for old, new in pairs(average, parameter)])
            average.flatten()[:5000].copy_(mixed)
    if CAUSE == "gather":
        dist.all_gather_object([None] * WORLD, [net.module.layers[0].weight.detach()] * 4)
    saves = CAUSE == "save" or (CAUSE == "save-other" and step % 2) or (CAUSE == "save-rank" and RANK == 0)
    if saves:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, OUT / f"checkpoint-{RANK}.pt")


def pairs(average, parameter):
    """Return the average and the value of some weights, in Python."""
    return zip(average.flatten()[:5000].tolist(), parameter.detach().flatten()[:5000].tolist())


def main():
    """Train."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if CAUSE == "files" and RANK == 0:
        torch.save(torch.rand(256), SAMPLE)
    net = Net()
    if WORLD > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net, bucket_cap_mb=0.001 if CAUSE == "buckets" else 25)
    optimizer = torch.optim.AdamW(net.parameters())
    batch = 4 * BATCH if CAUSE == "uneven-batch" and RANK == 1 else BATCH
    loader = DataLoader(Samples(STEPS * batch), batch_size=batch, collate_fn=collate)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        after_backward(net)
        optimizer.step()
        optimizer.zero_grad()
        after_update(net, optimizer, y, step)
    print(f"loss {loss.item():.3f}")
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
