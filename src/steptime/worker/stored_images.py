"""The images of a dataset that lies in fewer and larger files than its images: tar shards, and decoded pixels.

The core makes these forms (``datasets/stored_forms.py``); their index has the place of each image, and how many bytes
each file has.

The augmentation of photographs, the same in every framework: a random resized crop and a flip for each sample.

A sample is decoded at its full size, cut to a random rectangle, resized to the workload's size by a filter that takes
in every pixel, flipped left to right with probability one half, and normalised. The area of the rectangle is drawn
evenly, and so is the logarithm of its width over its height (Szegedy et al., "Going deeper with convolutions", 2015,
section 6).

Rectangles depend on the seed, the epoch and the sample, and on nothing else: neither on the loader, nor on its helpers,
nor on the worker that gets the sample. Every loader that can cut a given rectangle therefore gives the same pixels.
"""

import json
import os
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy

from steptime.worker.samples import mixed


def damaged(path: str, why: object) -> str:
    """Return the message about a damaged file of a stored form, with the next step."""
    folder = os.path.dirname(path)
    return "%s is damaged: %s; remove the folder %s, and run again: it is made anew" % (path, why, folder)


def require_whole(dataset: Dict[str, Any]) -> None:
    """Raise ValueError, which names the file, unless every file of a stored form is as long as in its index.

    A library that reads a file to its end does not miss what was cut off.
    """
    with open(dataset["index"]) as file:
        expected = json.load(file).get("bytes", {})
    for name, size in sorted(expected.items()):
        path = os.path.join(dataset["root"], name)
        found = os.path.getsize(path) if os.path.exists(path) else 0
        if found != size:
            raise ValueError(damaged(path, "it has %d bytes, not %d as in its index" % (found, size)))


class TarMembers(object):
    """The files in the tar shards of a dataset, read by their places: one call of the system for each.

    A worker takes its samples shard after shard (``worker/samples.py``), so that what it reads lies close together.
    """

    def __init__(self, dataset: Dict[str, Any]) -> None:
        """Read the index; raises ValueError where a shard is not whole."""
        require_whole(dataset)
        with open(dataset["index"]) as file:
            index = json.load(file)
        self._root = dataset["root"]
        self._shards = index["shards"]
        self._names = [name for name, _ in index["files"]]
        self._places = numpy.array(index["places"], dtype=numpy.int64)
        self._open: Dict[int, int] = {}

    def fault(self, index: int, why: object) -> str:
        """Return the message about an image that cannot be decoded, which names its shard."""
        shard = os.path.join(self._root, self._shards[self._places[index][0]])
        return damaged(shard, "%s in it cannot be decoded: %s" % (self._names[index], why))

    def place(self, index: int) -> Tuple[int, ...]:
        """Return the number of an image's shard, and where in it the file begins and how long it is, in bytes."""
        return tuple(int(each) for each in self._places[index])

    def read(self, index: int) -> bytes:
        """Return the bytes of an image's file."""
        shard, offset, length = self.place(index)
        # Helpers that were forked share the file, which ``pread`` does not mind: it has no position of its own.
        if shard not in self._open:
            self._open[shard] = os.open(os.path.join(self._root, self._shards[shard]), os.O_RDONLY)
        return os.pread(self._open[shard], length, offset)


class DecodedImages(object):
    """Pixels of all images, one behind the other in a file that is mapped into memory and shared by all processes.

    An image is uint8 (height, width, 3), a view of the file.
    """

    def __init__(self, dataset: Dict[str, Any], sizes: numpy.ndarray) -> None:
        """Map the file; ``sizes`` is width and height of each image.

        Raises ValueError when the file has another length than these sizes say.
        """
        require_whole(dataset)
        self._path = os.path.join(dataset["root"], "pixels.bin")
        self._sizes = sizes
        self._ends = numpy.cumsum(sizes[:, 0].astype(numpy.int64) * sizes[:, 1] * 3)
        # Mapped where it is read first: a helper that gets this object by pickling would get all pixels with it.
        self._pixels: Optional[numpy.ndarray] = None
        found = os.path.getsize(self._path)
        if found != self._ends[-1]:
            raise ValueError(damaged(self._path, "it has %d bytes, and its images %d" % (found, self._ends[-1])))

    def __getitem__(self, index: int) -> numpy.ndarray:
        if self._pixels is None:
            self._pixels = numpy.memmap(self._path, dtype=numpy.uint8, mode="r")
        width, height = (int(each) for each in self._sizes[index])
        end = int(self._ends[index])
        return self._pixels[end - width * height * 3 : end].reshape(height, width, 3)


_ATTEMPTS = 10
"""After so many rectangles that do not fit into the image, the largest one in its middle is taken."""
_DRAWS = 2 * _ATTEMPTS + 3
_HALF = 0.5


def crops(
    transform: Dict[str, Any], sizes: numpy.ndarray, seed: int, epoch: int, indices: Sequence[int]
) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return the rectangle of each sample, int32 (samples, 4): left, top, width, height; and who is flipped, bool.

    Args:
        transform: of the job's dataset: ``area`` and ``aspect`` with both ends of their ranges, and ``flip``.
        sizes: width and height of each of these samples, int (samples, 2).
        seed: of the job.
        epoch: from 0.
        indices: of the samples in the dataset, int (samples,).
    """
    sizes = numpy.asarray(sizes, dtype=numpy.int64).reshape(-1, 2)
    stream = _Stream(seed, epoch, indices)
    sides = _middle(transform, sizes)
    waiting = numpy.arange(len(sizes))
    for attempt in range(_ATTEMPTS):
        drawn = _drawn_sides(transform, sizes[waiting], stream.draw(2 * attempt, 2)[waiting])
        fits = ((drawn > 0) & (drawn <= sizes[waiting])).all(axis=1)
        sides[waiting[fits]] = drawn[fits]
        waiting = waiting[~fits]
        if not len(waiting):
            break
    last = stream.draw(2 * _ATTEMPTS, 3)
    corners = ((sizes - sides + 1) * last[:, :2]).astype(numpy.int64)
    corners[waiting] = (sizes[waiting] - sides[waiting]) // 2
    flips = (last[:, 2] < _HALF) & bool(transform["flip"])
    return numpy.concatenate([corners, sides], axis=1).astype(numpy.int32), flips


def _drawn_sides(transform: Dict[str, Any], sizes: numpy.ndarray, chances: numpy.ndarray) -> numpy.ndarray:
    """Return width and height for two even random numbers each; they may be larger than the image."""
    (least, most), (narrowest, widest) = transform["area"], numpy.log(transform["aspect"])
    area = sizes[:, 0] * sizes[:, 1] * (least + (most - least) * chances[:, 0])
    aspect = numpy.exp(narrowest + (widest - narrowest) * chances[:, 1])
    sides: numpy.ndarray = numpy.sqrt(numpy.stack([area * aspect, area / aspect], axis=1))
    return numpy.round(sides).astype(numpy.int64)


def _middle(transform: Dict[str, Any], sizes: numpy.ndarray) -> numpy.ndarray:
    """Return width and height of the largest rectangle whose aspect is in the range."""
    narrowest, widest = transform["aspect"]
    width, height = sizes[:, 0], sizes[:, 1]
    narrow = numpy.minimum(width, numpy.round(height * widest))
    low = numpy.minimum(height, numpy.round(width / narrowest))
    sides: numpy.ndarray = numpy.maximum(1, numpy.stack([narrow, low], axis=1))
    return sides.astype(numpy.int64)


class _Stream(object):
    """Random numbers by counter (SplitMix64: Steele, Lea, Flood, OOPSLA 2014): any of them without those before it."""

    def __init__(self, seed: int, epoch: int, indices: Sequence[int]) -> None:
        key = mixed(mixed(numpy.array([seed], dtype=numpy.uint64)) + numpy.uint64(epoch))
        self._first = key + numpy.asarray(indices).astype(numpy.uint64) * numpy.uint64(_DRAWS)

    def draw(self, first: int, count: int) -> numpy.ndarray:
        """Return float64 (samples, count) in [0, 1): the numbers from ``first`` on of each sample."""
        counters = self._first[:, None] + numpy.arange(first, first + count, dtype=numpy.uint64)
        return (mixed(counters) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
