#!/bin/sh
# accelerate 1.15.0: a prepared DataLoader fills the last batch of each rank up to its full size with samples from the
# start of the data, where torch's DistributedSampler adds at most one sample to a rank.
# Seen: 33 samples, 4 ranks, batch_size=4: 48 samples in an epoch, 15 of them repeated; with DistributedSampler 36, 3
# of them repeated.
# One would guess the same padding in both, as both give ranks the same number of batches. Samples per second by the
# size of the data set are here a third lower than by what was computed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat > "$folder/check.py" <<'PY'
import collections
import sys

import accelerate
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, DistributedSampler

SAMPLES = 33
RANKS = 4
BATCH = 4


def count(loaders):
    """Samples in an epoch of all ranks, how many came again, and the batch sizes of each rank."""
    seen, sizes = collections.Counter(), []
    for loader in loaders:
        batches = [batch.tolist() for batch in loader]
        sizes.append([len(batch) for batch in batches])
        for batch in batches:
            seen.update(batch)
    return seen.total(), seen.total() - len(seen), sizes


data = torch.arange(SAMPLES)
accelerate.PartialState(cpu=True)
prepared = count(
    prepare_data_loader(DataLoader(data, batch_size=BATCH), num_processes=RANKS, process_index=rank)
    for rank in range(RANKS)
)
sampled = count(
    DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, RANKS, rank, shuffle=False))
    for rank in range(RANKS)
)
print("of", SAMPLES, "(samples, again, batch sizes of each rank)")
print("accelerate", accelerate.__version__, prepared)
print("DistributedSampler of torch", torch.__version__, sampled)
sys.exit(prepared != (48, 15, [[4, 4, 4]] * RANKS) or sampled != (36, 3, [[4, 4, 1]] * RANKS))
PY
cd "$folder"
venv/bin/python -W ignore check.py
