"""Batches as CNTK's values: synthetic ones, arrays in memory, and image folders decoded by threads.

CNTK's own readers draw crops and orders that are not the protocol's and skip files that they cannot decode. Training
holds no lock of Python's while it computes, and decoding none while it decodes, so that threads are enough.
"""

import collections
import itertools
from concurrent.futures import ThreadPoolExecutor

import cntk
import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.samples import batch_indices, read_arrays, scale_and_shift, synthetic_batches

_PREFETCHED_BATCHES = 4


def open_loader(job, context):
    """Return the loader of a job: ``next()`` gives ``(inputs, targets)``, ``close()`` ends it.

    Both are CNTK's values: float32 (batch,) + input shape, and one-hot (batch, classes), which is None for a
    mean-squared-error workload.

    Raises ValueError when the dataset does not hold what the job says or is too small for one batch.
    """
    loader, workload, batch, seed = job["loader"], job["workload"], job["batch_per_worker"], job["seed"]
    encode = None
    if workload["loss"] != "mean_squared_error":
        table = numpy.eye(workload["classes"], dtype=numpy.float32)

        def encode(labels):
            return cntk.Value(batch=table[labels])

    if loader["kind"] == "synthetic":
        return CntkSyntheticLoader(
            synthetic_batches(workload, batch, loader["distinct_batches"], seed, context.rank), encode
        )
    order = batch_indices(loader["dataset"]["samples"], batch, seed, context.rank, context.workers)
    kind = {"arrays": CntkArrayLoader, "image_folder": CntkImageFolderLoader}[loader["dataset"]["form"]]
    return kind(job, order, encode)


def batches_ahead(loader):
    """Return how many batches the job's ``loader`` may hold ready."""
    folder = loader["kind"] == "native" and loader["dataset"]["form"] == "image_folder"
    return _PREFETCHED_BATCHES if folder and loader["processes"] else 0


class CntkSyntheticLoader(object):
    """Batches that are CNTK's already, one after the other without end."""

    def __init__(self, batches, encode):
        self._batches = itertools.cycle(
            [(cntk.Value(batch=inputs), encode(targets) if encode else None) for inputs, targets in batches]
        )

    def next(self):
        return next(self._batches)

    def close(self):
        """Do nothing: there is nothing to release."""


class CntkArrayLoader(object):
    """Samples that lie in memory as bytes: a batch is one gather, one multiplication and one addition.

    That takes microseconds, so it always happens in the training thread.
    """

    def __init__(self, job, order, encode):
        dataset = job["loader"]["dataset"]
        self._images, self._labels = read_arrays(dataset)
        self._scale, self._shift = scale_and_shift(dataset["transform"], self._images.shape[1])
        self._shape = (job["batch_per_worker"],) + tuple(job["workload"]["input_shape"])
        self._order = order
        self._encode = encode

    def next(self):
        _, chosen = next(self._order)
        inputs = self._images[chosen] * self._scale
        inputs += self._shift
        targets = self._encode(self._labels[chosen]) if self._encode else None
        return cntk.Value(batch=inputs.reshape(self._shape)), targets

    def close(self):
        """Do nothing: there is nothing to release."""


class CntkImageFolderLoader(object):
    """Files decoded by Pillow, some batches ahead in threads if the job gives any."""

    def __init__(self, job, order, encode):
        dataset, input_shape = job["loader"]["dataset"], tuple(job["workload"]["input_shape"])
        self._files = PhotographFiles(dataset, input_shape, job["seed"])
        self._shape = (job["batch_per_worker"],) + input_shape
        self._order = order
        self._encode = encode
        self._ahead = collections.deque()
        self._pool = None
        if job["loader"]["processes"]:
            self._pool = ThreadPoolExecutor(job["loader"]["processes"])
            for _ in range(_PREFETCHED_BATCHES):
                self._begin()

    def next(self):
        if self._pool is None:
            self._begin()
        inputs, chosen, running = self._ahead.popleft()
        if self._pool is not None:
            self._begin()
        for each in running:
            each.result()  # raises what its thread did
        return cntk.Value(batch=inputs), self._encode(self._files.labels[chosen]) if self._encode else None

    def _begin(self):
        """Read the next batch, or have it read by the threads."""
        epoch, chosen = next(self._order)
        inputs = numpy.empty(self._shape, dtype=numpy.float32)
        first = epoch * len(self._files)
        calls = [(first + int(index), row) for index, row in zip(chosen, inputs)]
        if self._pool is None:
            running = []
            for call in calls:
                self._read(*call)
        else:
            running = [self._pool.submit(self._read, *call) for call in calls]
        self._ahead.append((inputs, chosen, running))

    def _read(self, key, out):
        """Put a normalised sample into ``out``, an array of the input's shape."""
        files = self._files
        image = out.reshape((files.channels,) + files.size)
        numpy.multiply(files.keyed_crop(key).transpose(2, 0, 1), files.scale, out=image)
        image += files.shift

    def close(self):
        """End the threads once they have read the file at which they are."""
        for _, _, running in self._ahead:
            for each in running:
                each.cancel()
        if self._pool is not None:
            self._pool.shutdown()
