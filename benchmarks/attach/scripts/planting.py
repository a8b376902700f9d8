"""Samples, a network and an evaluation of torch with planted causes (`planted_times.py`)."""

import hashlib
import time

import planted_times
import torch
from planted_times import (  # noqa: F401 - what the scripts have from here
    BATCH,
    EVALUATED_S,
    LOAD_S,
    OUT,
    SLOW_S,
    STEPS,
    WIDTH,
    pause,
    planted,
    rank,
    timed,
    world,
)
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Samples(Dataset):
    """Random samples, a batch of which takes ``load_s``."""

    def __init__(self, samples=4096, load_s=LOAD_S, cause="load"):
        self.samples, self.load_s, self.cause = samples, load_s, cause

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return timed(self.cause, self.made, index)

    def made(self, index):
        """Return sample ``index``, after its share of the time."""
        time.sleep(self.load_s / BATCH)
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index)), index % 10


class Stream(IterableDataset):
    """The same, one after another."""

    def __iter__(self):
        samples = Samples()
        return (samples[index] for index in range(len(samples)))


class Net(nn.Module):
    """Four layers and a head; slow where ``slow``."""

    def __init__(self, slow=None, checkpoint=""):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(WIDTH, 10)
        self.slow = rank == 1 if slow is None else slow
        self.checkpoint = checkpoint

    def forward(self, x):
        if torch.compiler.is_compiling():
            return self.head(self.body(x))
        return timed("forward" if torch.is_grad_enabled() else "forward without gradient", self.computed, x)

    def computed(self, x):
        """Return the output, after the pause of a slow one."""
        if self.slow:
            pause("slow" if torch.is_grad_enabled() else "slow without gradient", SLOW_S)
        if not self.checkpoint:
            return self.head(self.body(x))
        from torch.utils.checkpoint import checkpoint

        if self.checkpoint == "reentrant":
            x = x.requires_grad_()
        for layer in self.body:
            x = checkpoint(layer, x, use_reentrant=self.checkpoint == "reentrant")
        return self.head(x)


def batches(samples=None, **settings):
    """Return a loader of batches."""
    return DataLoader(samples or Samples(), batch_size=BATCH, **settings)


def endless(loader):
    """Return the batches of ``loader``, again and again."""
    while True:
        yield from loader


def loss_of(net, batch):
    """Return the loss of one batch."""
    return functional.cross_entropy(net(batch[0]), batch[1])


def evaluate(net, loader=None):
    """Evaluate ten batches, of ``loader`` or made here."""
    net.eval()
    with torch.no_grad():
        taken = iter(loader) if loader is not None else None
        for _ in range(10):
            x = next(taken)[0] if taken is not None else torch.randn(BATCH, WIDTH)
            pause("evaluated batch", EVALUATED_S)
            net(x)
    net.train()


def evaluation_loader():
    """Return a quick loader of other samples."""
    return batches(Samples(400, 0.02, "evaluation load"))


def finish(loss, *modules, **facts):
    """Write what was trained, to the bit, and what was planted."""
    digest = hashlib.sha256()
    for module in modules:
        for parameter in module.parameters():
            value = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            digest.update(value.detach().float().contiguous().numpy().tobytes())
    said = {"loss": loss.item().hex() if loss is not None else None, "weights": digest.hexdigest(), **facts}
    planted_times.say(rank, said)
