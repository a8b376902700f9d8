"""The images of a dataset that lies in fewer and larger files than its images: tar shards, and decoded pixels.

The core makes these forms (``datasets/stored_forms.py``); their index tells where each image lies.
"""

import json
import os

import numpy


class TarMembers(object):
    """The files in the tar shards of a dataset, read by their places: one call of the system for each.

    A worker takes its samples shard after shard (``worker/samples.py``), so that what it reads lies close together.
    """

    def __init__(self, dataset):
        with open(dataset["index"]) as file:
            index = json.load(file)
        self._root = dataset["root"]
        self._shards = index["shards"]
        self._names = [name for name, _ in index["files"]]
        self._places = numpy.array(index["places"], dtype=numpy.int64)
        self._open = {}

    def name(self, index):
        """Return the shard and the name of an image, for messages."""
        return os.path.join(self._root, self._shards[self._places[index][0]], self._names[index])

    def read(self, index):
        """Return the bytes of an image's file."""
        shard, offset, length = (int(each) for each in self._places[index])
        # Helpers that were forked share the file, which ``pread`` does not mind: it has no position of its own.
        if shard not in self._open:
            self._open[shard] = os.open(os.path.join(self._root, self._shards[shard]), os.O_RDONLY)
        return os.pread(self._open[shard], length, offset)


class DecodedImages(object):
    """Pixels of all images, one behind the other in a file that is mapped into memory and shared by all processes.

    An image is uint8 (height, width, 3), a view of the file.
    """

    def __init__(self, dataset, sizes):
        """Map the file; ``sizes`` is width and height of each image.

        Raises ValueError when the file has another length than these sizes say.
        """
        self._path = os.path.join(dataset["root"], "pixels.bin")
        self._sizes = sizes
        self._ends = numpy.cumsum(sizes[:, 0].astype(numpy.int64) * sizes[:, 1] * 3)
        # Mapped where it is read first: a helper that gets this object by pickling would get all pixels with it.
        self._pixels = None
        found = os.path.getsize(self._path)
        if found != self._ends[-1]:
            raise ValueError("%s has %d bytes, and its index says %d" % (self._path, found, self._ends[-1]))

    def __getitem__(self, index):
        if self._pixels is None:
            self._pixels = numpy.memmap(self._path, dtype=numpy.uint8, mode="r")
        width, height = (int(each) for each in self._sizes[index])
        end = int(self._ends[index])
        return self._pixels[end - width * height * 3 : end].reshape(height, width, 3)
