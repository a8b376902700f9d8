"""What is planted in the training scripts beside this file, timed by their own clock, and what they say at their end.

Each batch takes 20 ms to load, rank 1's forward 15 ms more, evaluation about half a second.
"""

import hashlib
import json
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset

STEPS = int(os.environ.get("STEPS", "24"))
OUT = Path(os.environ.get("OUT", "."))
LOAD_S, SLOW_S, EVALUATED_S = 0.02, 0.015, 0.05
BATCH, WIDTH = 4, 512
rank = int(os.environ.get("RANK", os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))))
world = int(os.environ.get("WORLD_SIZE", os.environ.get("PMI_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))))
planted = {}

OUT.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(1)
torch.manual_seed(0)


def pause(cause, seconds):
    """Sleep, and note how long that took in truth."""
    begin = time.monotonic()
    time.sleep(seconds)
    planted.setdefault(cause, []).append(time.monotonic() - begin)


def timed(cause, act, *arguments):
    """Call ``act`` and note how long it took."""
    begin = time.monotonic()
    result = act(*arguments)
    planted.setdefault(cause, []).append(time.monotonic() - begin)
    return result


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

    (OUT / f"said-{rank}.json").write_text(json.dumps({"result": said, "planted": planted}))
    print("LOSS", said["loss"], said["weights"][:16], flush=True)
