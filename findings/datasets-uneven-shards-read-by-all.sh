#!/bin/sh
# datasets 5.2.0: where the shards of an IterableDataset do not divide by the ranks, split_dataset_by_node lets each
# rank make all examples and drop those of others at the very end, so that even a map added after the split runs on
# all of them: more ranks load no faster.
# Seen: of 24 examples in 4 shards each of 2 ranks reads and maps 12; in 3 shards each reads and maps 24 to keep 12,
# mapped before the split or after.
# One would guess that a rank reads about its half (one rank 2 shards, the other 1), or at least that what comes after
# the split works on the half that it handed out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasets==5.2.0
cat > "$folder/check.py" <<'PY'
import sys

import datasets
from datasets.distributed import split_dataset_by_node

EXAMPLES = 24


def load(shard_count, map_last):
    """For each of 2 ranks, how many examples are read, mapped and kept."""
    counts = []
    for rank in range(2):
        read, mapped = [], []

        def examples(shards):
            for shard in shards:
                for number in range(shard, EXAMPLES, shard_count):
                    read.append(number)
                    yield {"number": number}

        def double(example):
            mapped.append(example["number"])
            return {"number": 2 * example["number"]}

        every = datasets.IterableDataset.from_generator(examples, gen_kwargs={"shards": list(range(shard_count))})
        if map_last:
            own = split_dataset_by_node(every, rank=rank, world_size=2).map(double)
        else:
            own = split_dataset_by_node(every.map(double), rank=rank, world_size=2)
        kept = [each["number"] for each in own]
        counts.append((len(read), len(mapped), len(kept)))
    return counts


changed = False
print("datasets", datasets.__version__, "(read, mapped, kept) by each rank")
for map_last in (False, True):
    even, uneven = load(4, map_last), load(3, map_last)
    print("mapped after the split:" if map_last else "mapped before the split:", "4 shards", even, "3 shards", uneven)
    changed = changed or even != [(12, 12, 12)] * 2 or uneven != [(24, 24, 12)] * 2
sys.exit(changed)
PY
cd "$folder"
HF_HOME="$folder/home" HF_HUB_OFFLINE=1 venv/bin/python -W ignore check.py
