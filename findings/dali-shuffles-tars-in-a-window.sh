#!/bin/sh
# nvidia-dali 2.4.0: random_shuffle=True of readers.file shuffles all files; that of readers.webdataset draws from a
# window of 1,024 samples that moves through the tar, in every epoch, and each rank's window through its own part.
# Seen: 8,000 samples in order, batches of 64: the first batch holds files up to 7896, but samples of the tar up to 1047;
# in the next epoch again. With two shards, rank 0 trains on the first half of the tar alone, then on the second alone.
# One would guess that one option means one thing: but two loaders of the same data, set up alike, train on batches of
# all classes and on batches of the first few, so that neither their accuracy nor what decoding costs is comparable.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nvidia-dali-cuda120==2.4.0 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import io
import pathlib
import sys
import tarfile

import numpy as np
from nvidia import dali
from nvidia.dali import fn, pipeline_def, types

SAMPLES, BATCH = 8000, 64
EPOCH = SAMPLES // BATCH
WINDOW = 1024
values = [np.int32(number).tobytes() for number in range(SAMPLES)]
pathlib.Path("files/all").mkdir(parents=True)
with tarfile.open("samples.tar", "w") as tar:
    for number, value in enumerate(values):
        pathlib.Path(f"files/all/{number:06d}.bin").write_bytes(value)
        member = tarfile.TarInfo(f"{number:06d}.value")
        member.size = len(value)
        tar.addfile(member, io.BytesIO(value))


@pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, seed=1)
def of_tar(shards):
    return fn.readers.webdataset(
        paths=["samples.tar"], ext=["value"], dtypes=[types.INT32], random_shuffle=True, num_shards=shards, shard_id=0
    )


@pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, seed=1)
def of_files(shards):
    content, _ = fn.readers.file(
        file_root="files", file_filters=["*.bin"], random_shuffle=True, num_shards=shards, shard_id=0
    )
    return content


def batches(make, count, shards=1):
    pipeline = make(shards)
    pipeline.build()
    for _ in range(count):
        (batch,) = pipeline.run()
        yield [int(np.frombuffer(np.asarray(batch.at(each)).tobytes(), np.int32)[0]) for each in range(BATCH)]


largest = {}
halves = {}
for name, make in (("files", of_files), ("tar", of_tar)):
    drawn = list(batches(make, EPOCH + 1))
    largest[name] = [max(drawn[0]), max(drawn[EPOCH])]
    assert len({value for batch in drawn[:EPOCH] for value in batch}) == SAMPLES
    of_rank_0 = [value for batch in batches(make, EPOCH, 2) for value in batch]
    epochs = of_rank_0[: SAMPLES // 2], of_rank_0[SAMPLES // 2 :]
    halves[name] = [sum(value < SAMPLES // 2 for value in epoch) for epoch in epochs]
print("nvidia-dali", dali.__version__, "largest of the first batch of two epochs:", largest)
print("samples of the first half that rank 0 of two has in two epochs of", SAMPLES // 2, "each:", halves)
window = all(value <= WINDOW + BATCH for value in largest["tar"])
whole = all(value > 0.9 * SAMPLES for value in largest["files"])
shares = [count / (SAMPLES // 2) for count in halves["files"]]
sys.exit(not (window and whole and halves["tar"] == [SAMPLES // 2, 0] and all(0.4 < share < 0.6 for share in shares)))
PY
cd "$folder"
venv/bin/python -W ignore check.py
