#!/bin/sh
# torch 2.13.0: each worker of a DataLoader makes batches of its own share of an IterableDataset and drops its own
# remainder: more workers mean smaller batches, and none at all with drop_last.
# Seen: 100 samples, batch_size=64: batches of 64 and 36 without workers; 50 and 50 with 2 workers, and 0 batches with
# drop_last, where the loader's length still says 1. No warning.
# One would guess that num_workers changes speed alone: a sweep over it to find the fastest compares different batches.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shared(IterableDataset):
    """One hundred samples, of which each worker takes its share."""

    def __len__(self):
        return 100

    def __iter__(self):
        worker = get_worker_info()
        return iter(range(worker.id, 100, worker.num_workers) if worker else range(100))


EXPECTED = {
    (0, False): (2, [64, 36]),
    (2, False): (2, [50, 50]),
    (0, True): (1, [64]),
    (2, True): (1, []),
}
"""By workers and drop_last: the loader's length, and the size of each batch."""

changed = False
for (workers, drop_last), expected in EXPECTED.items():
    loader = DataLoader(Shared(), batch_size=64, num_workers=workers, drop_last=drop_last)
    sizes = [len(batch) for batch in loader]
    print("torch", torch.__version__, "workers", workers, "drop_last", drop_last, "len", len(loader), "batches", sizes)
    changed = changed or (len(loader), sizes) != expected
sys.exit(changed)
PY
cd "$folder"
venv/bin/python check.py
