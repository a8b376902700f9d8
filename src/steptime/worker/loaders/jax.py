"""Batches for JAX: synthetic ones, and a dataset on disk read by numpy and Pillow, with helpers that run ahead."""

import itertools

import numpy

from steptime.worker.batches import synthetic_batches
from steptime.worker.loaders.jax_images import ArrayReader, PhotoReader
from steptime.worker.loaders.jax_prefetching import PER_HELPER, with_helpers
from steptime.worker.sampling import batch_indices


def open_batches(job, place, put):
    """Return the batches of a job: an endless iterator of ``(inputs, targets)`` with a ``close()``.

    Inputs are float32, images channels last; targets are int32 class indices, or the inputs themselves for a
    mean-squared-error workload. Both are what ``put`` makes of numpy arrays: arrays on the device.

    Raises ValueError when the dataset does not hold what the job says or is too small for one batch and, from
    ``next``, when a file cannot be decoded.
    """
    workload, loader = job["workload"], job["loader"]
    squared = workload["loss"] == "mean_squared_error"

    def on_device(pair):
        inputs, targets = pair
        inputs = put(inputs)
        return inputs, inputs if squared else put(targets.astype(numpy.int32))

    if loader["kind"] == "synthetic":
        pairs = synthetic_batches(
            workload, job["batch_per_worker"], loader["distinct_batches"], job["seed"], place.rank
        )
        return Batches(itertools.cycle([on_device((_channels_last(inputs), targets)) for inputs, targets in pairs]))
    dataset = loader["dataset"]
    plan = batch_indices(dataset["samples"], job["batch_per_worker"], job["seed"], place.rank, place.workers)
    if dataset["form"] == "arrays":
        # A gather from memory is faster than handing its result from one process to another.
        return Batches(map(on_device, map(ArrayReader(dataset, workload["input_shape"]), plan)))
    reader = PhotoReader(dataset, workload["input_shape"], job["seed"])
    read, close = with_helpers(reader.read, plan, loader["processes"])
    return Batches((on_device(reader.finish(*pair)) for pair in read), close, PER_HELPER * loader["processes"])


class Batches(object):
    """An endless iterator, what ends its helpers, and ``ahead``, how many batches these may hold ready."""

    def __init__(self, batches, close=lambda: None, ahead=0):
        self._batches = batches
        self.close = close
        self.ahead = ahead

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._batches)


def _channels_last(images):
    if images.ndim < 4:  # noqa: PLR2004 - batch, channels, height, width
        return images
    return numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))
