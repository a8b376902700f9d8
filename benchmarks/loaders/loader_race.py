"""PyTorch's loaders and plain programs in turns in one process: images per CPU-second and per second, with ratios.

The contestants over the same folder, with the same numbers of threads or helpers:

``native``   steptime's native loader
``plain``    a ``DataLoader`` as an expert writes it: a map-style dataset over Pillow with a random resized crop
``dali``     steptime's loader ``dali``
``example``  the pipeline of NVIDIA's example for ImageNet with PyTorch, on processors: ``readers.file`` that shuffles,
             ``decoders.image_random_crop`` of at most 100 attempts, a triangular resize, a flip by ``coin_flip`` in
             ``crop_mirror_normalize``; its batches are torch's without a copy
``iterator`` the same pipeline behind ``DALIClassificationIterator``, which copies, as the example has it

All draw rectangles from the same ranges, 8 to 100 % of an image and 3/4 to 4/3, where the example has 10 to 100 % and
0.8 to 1.25, so that all have as many pixels to decode.

Run it in the environment ``pytorch-dali``, from the folder of the repository::

    PYTHONPATH=src PYTHON benchmarks/loaders/loader_race.py FOLDER [--side 64] [--helpers 0] [--blocks 12]

``FOLDER`` has one folder of images per class. A turn begins and ends with the contestant's queue of batches full, so
that processor time, of helper processes too, is that of the batches which were taken. Images per second are shown as
well; on a busy machine they mean nothing.
"""

import argparse
import itertools
import json
import math
import os
import random
import tempfile
import time
from pathlib import Path

import numpy
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIClassificationIterator
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from steptime.libraries.torch.loader import open_torch_batches

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PAIRS = [("native", "plain"), ("dali", "example"), ("dali", "iterator"), ("dali", "native")]


class Rank:
    """The only worker."""

    rank, workers = 0, 1


class PlainFolder(Dataset):
    """Photographs cut at random by Pillow, one item each."""

    def __init__(self, files, side):
        self.files, self.side = files, side

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        left, top, width, height = rectangle(*image.size)
        image = image.crop((left, top, left + width, top + height)).resize((self.side, self.side), Image.BILINEAR)
        pixels = numpy.array(image)
        if random.random() < 0.5:
            pixels = pixels[:, ::-1].copy()
        tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)
        return tensor.sub_(PLAIN_MEAN).div_(PLAIN_STD), label


PLAIN_MEAN, PLAIN_STD = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))


def rectangle(width, height):
    """Draw a rectangle of 8 to 100 % of an image, as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            return random.randint(0, width - across), random.randint(0, height - down), across, down
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def plain_batches(files, side, batch, helpers):
    """Return the batches of a plain ``DataLoader`` without end."""
    extra = {"persistent_workers": True, "prefetch_factor": 2} if helpers else {}
    loader = DataLoader(PlainFolder(files, side), batch, shuffle=True, num_workers=helpers, drop_last=True, **extra)
    return itertools.chain.from_iterable(itertools.repeat(loader))


@pipeline_def
def example_pipeline(root, side):
    """NVIDIA's pipeline for ImageNet on processors."""
    encoded, labels = fn.readers.file(file_root=root, random_shuffle=True, pad_last_batch=True, name="Reader")
    images = fn.decoders.image_random_crop(
        encoded, output_type=types.RGB, random_aspect_ratio=[0.75, 4 / 3], random_area=[0.08, 1.0], num_attempts=100
    )
    images = fn.resize(images, resize_x=side, resize_y=side, interp_type=types.INTERP_TRIANGULAR)
    mirror = fn.random.coin_flip(probability=0.5)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255 * each for each in MEAN],
        std=[255 * each for each in STD],
        mirror=mirror,
    )
    return images, labels


def built_example(root, side, batch, helpers):
    """Return NVIDIA's pipeline, built, with as many threads and batches ahead as steptime's."""
    pipeline = example_pipeline(
        root=root,
        side=side,
        batch_size=batch,
        num_threads=max(1, helpers),
        device_id=None,
        prefetch_queue_depth=max(1, 2 * helpers),
    )
    pipeline.build()
    return pipeline


def example_batches(*settings):
    """Return the batches of NVIDIA's pipeline as tensors of torch, without end."""
    pipeline = built_example(*settings)
    while True:
        images, labels = pipeline.run()
        yield torch.from_dlpack(images.as_tensor()), torch.from_dlpack(labels.as_tensor()).squeeze(-1).long()


def iterator_batches(*settings):
    """Return the batches of NVIDIA's pipeline as its iterator for PyTorch hands them over, without end."""
    pipeline = built_example(*settings)
    batches = DALIClassificationIterator(
        pipeline, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True
    )
    while True:
        for (pair,) in batches:
            yield pair["data"], pair["label"].squeeze(-1).long()


def steptime_batches(kind, root, index, samples, side, batch, helpers):
    """Return the batches of one of steptime's loaders."""
    transform = {"size": [side, side], "area": [0.08, 1.0], "aspect": [0.75, 4 / 3], "flip": True}
    dataset = {"form": "image_folder", "root": root, "index": index, "samples": samples}
    job = {
        "workload": {"input_shape": [3, side, side], "loss": "softmax_cross_entropy", "layers": []},
        "batch_per_worker": batch,
        "seed": 0,
        "loader": {
            "kind": kind,
            "processes": helpers,
            "dataset": {**dataset, "transform": {**transform, "mean": MEAN, "std": STD}},
        },
    }
    return open_torch_batches(job, Rank(), torch.device("cpu"), False)


TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_S, _IDLE = 0.1, 0.1
"""The queue of a contestant is full when less than this share of a look's time is computed."""


def cpu_s():
    """Processor seconds of this process with its threads, and of its living helpers."""
    helpers = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    total = time.process_time()
    for helper in helpers:
        fields = Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def settle():
    """Wait until nothing is made ahead any more; return the processor seconds by then."""
    before = cpu_s()
    while True:
        time.sleep(_LOOK_S)
        now = cpu_s()
        if now - before < _IDLE * _LOOK_S:
            return now
        before = now


def turn(batches, batch, ahead, seconds):
    """Take batches for about so long; return images per processor second, and per second behind the full queue."""
    begin, count = settle(), 0
    for _ in range(ahead):
        next(batches)
        count += batch
    started, waiting = time.perf_counter(), count
    while time.perf_counter() - started < seconds:
        next(batches)
        count += batch
    took = time.perf_counter() - started
    return count / (settle() - begin), (count - waiting) / took


def interval(values):
    """Return the geometric mean of ratios and its 95 % interval by Student's t."""
    logs = numpy.log(values)
    quantile = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 12: 2.20, 16: 2.13, 20: 2.09}
    nearest = max((n for n in quantile if n <= len(logs)), default=3)
    half = quantile[nearest] * logs.std(ddof=1) / math.sqrt(len(logs))
    return tuple(float(each) for each in numpy.exp([logs.mean(), logs.mean() - half, logs.mean() + half]))


def main():
    """Race, and print one line for each contestant and each pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--helpers", type=int, default=0, help="helper processes or threads of each loader")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    classes = sorted(each.name for each in chosen.folder.iterdir() if each.is_dir())
    files = [
        (f"{name}/{path.name}", label)
        for label, name in enumerate(classes)
        for path in sorted((chosen.folder / name).iterdir())
    ]
    sizes = []
    for name, _ in files:
        with Image.open(chosen.folder / name) as image:
            sizes.append(image.size)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as index:
        json.dump({"files": files, "classes": classes, "sizes": sizes}, index)
        index.flush()
        root, side, batch, helpers = str(chosen.folder), chosen.side, chosen.batch, chosen.helpers
        own = [root, index.name, len(files), side, batch, helpers]
        whole = [(str(chosen.folder / name), label) for name, label in files]
        contestants = {
            "native": steptime_batches("native", *own),
            "plain": plain_batches(whole, side, batch, helpers),
            "dali": steptime_batches("dali", *own),
            "example": example_batches(root, side, batch, helpers),
            "iterator": iterator_batches(root, side, batch, helpers),
        }
        for batches in contestants.values():
            for _ in range(3):
                next(batches)
        order, ahead = list(contestants), 1 + 2 * helpers
        rates = {name: [] for name in contestants}
        stream = random.Random(0)
        for _ in range(chosen.blocks):
            stream.shuffle(order)
            for name in order:
                rates[name].append(turn(contestants[name], batch, ahead, chosen.seconds))
    print(
        f"{len(files)} images, {sizes[0][0]}x{sizes[0][1]} to {side}x{side}, {helpers} helpers, {chosen.blocks} blocks"
    )
    for kind, what in enumerate(("images per CPU-second", "images per second")):
        print(what)
        for name, found in rates.items():
            print(f"  {name:8} {numpy.median([each[kind] for each in found]):8.0f}")
        for first, second in PAIRS:
            ratios = [one[kind] / other[kind] for one, other in zip(rates[first], rates[second], strict=True)]
            ratio, least, most = interval(ratios)
            print(f"  {first} / {second}: {ratio:.3f} [{least:.3f}, {most:.3f}]")


if __name__ == "__main__":
    main()
