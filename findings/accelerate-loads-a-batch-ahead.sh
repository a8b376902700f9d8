#!/bin/sh
# accelerate 1.15.0: a prepared DataLoader loads batch n+1 before it hands out batch n, on the caller's time: the wait
# for a slow batch shows a step early, the first wait is for two batches and the end comes without one.
# Seen: of six batches, 0.1 s each and 1 s for number 3, the waits are (0.2, 0.1, 1.0, 0.1, 0.1, 0.0) s; plain
# torch's (0.1, 0.1, 0.1, 1.0, 0.1, 0.1) s.
# One would guess that with num_workers=0 a batch is loaded where it is asked for, prepared or not, so that one blames
# the batch whose step had the long wait.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat > "$folder/check.py" <<'PY'
import sys
import time

import accelerate
import torch
from torch.utils.data import DataLoader, Dataset

BATCHES = 6
SLOW = 3
"""Number of the batch that takes ten times as long as others."""


class Slow(Dataset):
    def __init__(self):
        self.loaded = []

    def __len__(self):
        return BATCHES

    def __getitem__(self, number):
        self.loaded.append(number)
        time.sleep(1.0 if number == SLOW else 0.1)
        return torch.tensor(float(number))


def watch(loader):
    """The wait for each batch in seconds, and the batches that were loaded in it."""
    loaded = loader.dataset.loaded
    waits, batches = [], []
    iterator = iter(loader)
    for _ in range(BATCHES):
        loaded.clear()
        started = time.monotonic()
        next(iterator)
        waits.append(round(time.monotonic() - started, 1))
        batches.append(tuple(loaded))
    return waits, batches


plain = watch(DataLoader(Slow(), num_workers=0))
prepared = watch(accelerate.Accelerator(cpu=True).prepare(DataLoader(Slow(), num_workers=0)))
print("torch", torch.__version__, "waits and the batches loaded in them:", *plain)
print("accelerate", accelerate.__version__, "waits and the batches loaded in them:", *prepared)
sys.exit(plain[1] != [(0,), (1,), (2,), (3,), (4,), (5,)] or prepared[1] != [(0, 1), (2,), (3,), (4,), (5,), ()])
PY
cd "$folder"
venv/bin/python -W ignore check.py
