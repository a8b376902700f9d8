"""A script of PyTorch with one cause planted: ``python planted_script.py CAUSE``, or by torchrun.

``decode`` decodes each JPEG image between steps, ``decode-beside`` does so in another process, ``decoded`` once.
``save`` writes a checkpoint to the disk after each update, ``save-seldom`` after every twentieth; ``summarise`` writes
histograms of all weights after each update, ``summarise-seldom`` after every twentieth. ``uneven`` has rank 1 compute
what rank 0 does not; ``even`` has neither.
"""

import io
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH, WIDTH = 120, 8, 768
CAUSE = sys.argv[1]
OUT = Path(os.environ.get("OUT", "."))
EVERY = {"save": 1, "save-seldom": 20, "summarise": 1, "summarise-seldom": 20}


def encoded(side):
    """Return a picture as JPEG."""
    pixels = torch.randint(256, (side, side, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "JPEG")
    return file.getvalue()


class Pictures(Dataset):
    """One picture, decoded for each sample, or once."""

    def __init__(self, side, *, once):
        self.file = encoded(side)
        self.decoded = self.pixels() if once else None

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        return self.pixels() if self.decoded is None else self.decoded, index % 10

    def pixels(self):
        """Return the picture as numbers."""
        with Image.open(io.BytesIO(self.file)) as picture:
            small = picture.convert("L").resize((16, 16))
        return torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).float() / 255


class Net(nn.Module):
    """Three layers, and beside them what only one rank computes."""

    def __init__(self, times):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
        )
        self.times = times

    def forward(self, x):
        with torch.no_grad():
            for _ in range(self.times):
                self.layers(x)
        return self.layers(x)


def summarise(net):
    """Write a histogram of each weight's values to the disk."""
    counts = [parameter.detach().histc(200).tolist() for parameter in net.parameters()]
    (OUT / "summary.json").write_text(json.dumps(counts))


def main():
    """Train."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    net = Net(60 if CAUSE == "uneven" and rank == 1 else 0)
    if world > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    samples = Pictures(160, once=CAUSE not in {"decode", "decode-beside"})
    beside = {"num_workers": 1} if CAUSE == "decode-beside" else {}
    saved, summarised = (EVERY.get(CAUSE) if CAUSE.startswith(name) else None for name in ("save", "summarise"))
    for number, (x, y) in enumerate(DataLoader(samples, batch_size=BATCH, **beside), 1):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if saved and number % saved == 0:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, OUT / "checkpoint.pt")
        if summarised and number % summarised == 0:
            summarise(net)
    print(f"loss {loss.item():.3f}")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
