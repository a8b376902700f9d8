"""The images of a dataset that lies in fewer and larger files than its images: tar shards, and decoded pixels.

The core makes these forms (``datasets/stored_forms.py``); their index has the place of each image, and how many bytes
each file has.
"""

import json
import os
from typing import Any, Dict, Optional, Tuple

import numpy


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
