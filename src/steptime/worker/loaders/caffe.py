"""Batches as Caffe's in-memory data layer reads them: arrays that it is given once and then goes round in.

A loader owns a ring of ``slots`` batches: ``inputs`` is float32 (slots * batch,) + input shape, ``targets`` float32
(slots * batch,), class indices. ``fill()`` makes the next slot of the ring ready, and ``close()`` ends what runs.
"""

import numpy

from steptime.worker.batches import synthetic_batches
from steptime.worker.loaders.caffe_images import ImageFiles
from steptime.worker.loaders.caffe_processes import SLOTS_PER_HELPER, HelpedLoader
from steptime.worker.sampling import batch_indices, read_arrays, scale_and_shift


def open_loader(job, place):
    """Return the loader of a job.

    To be called before MPI is initialised: a process that holds MPI's connections must not be forked.

    Raises ValueError when the dataset does not hold what the job says or is too small for one batch.
    """
    loader = job["loader"]
    if loader["kind"] == "synthetic":
        return SyntheticLoader(job, place)
    if loader["dataset"]["form"] == "arrays":
        return ArrayLoader(job, place)
    return HelpedLoader(job, place) if loader["processes"] else FileLoader(job, place)


def batches_ahead(loader):
    """Return how many batches the job's ``loader`` may hold ready."""
    folder = loader["kind"] == "native" and loader["dataset"]["form"] == "image_folder"
    return SLOTS_PER_HELPER * loader["processes"] if folder else 0


class SyntheticLoader(object):
    """Batches that are all there from the beginning."""

    def __init__(self, job, place):
        count = job["loader"]["distinct_batches"]
        pairs = synthetic_batches(job["workload"], job["batch_per_worker"], count, job["seed"], place.rank)
        self.inputs = numpy.concatenate([inputs for inputs, _ in pairs])
        self.targets = numpy.zeros(len(self.inputs), dtype=numpy.float32)
        if job["workload"]["loss"] != "mean_squared_error":  # whose target is the input itself
            self.targets[...] = numpy.concatenate([targets for _, targets in pairs])

    def fill(self):
        """Do nothing: every slot is ready."""

    def close(self):
        """Do nothing: nothing runs."""


class ArrayLoader(object):
    """Samples that lie in memory as bytes: a batch is one gather, one multiplication and one addition.

    That takes microseconds, so it always happens in the training process.
    """

    def __init__(self, job, place):
        dataset, batch = job["loader"]["dataset"], job["batch_per_worker"]
        self._batches = batch_indices(dataset["samples"], batch, job["seed"], place.rank, place.workers)
        self._images, self._labels = read_arrays(dataset)
        shape = tuple(job["workload"]["input_shape"])
        if self._images[0].size != numpy.prod(shape):
            raise ValueError(
                "%s holds images of %s where the workload expects %s"
                % (dataset["path"], list(self._images.shape[1:]), list(shape))
            )
        self._scale, self._shift = scale_and_shift(dataset["transform"], self._images.shape[1])
        self._pixels = numpy.empty((batch,) + self._images.shape[1:], dtype=numpy.float32)
        self.inputs = self._pixels.reshape((batch,) + shape)
        self.targets = numpy.empty(batch, dtype=numpy.float32)

    def fill(self):
        """Replace the one slot."""
        _, chosen = next(self._batches)
        numpy.multiply(self._images[chosen], self._scale, out=self._pixels)
        self._pixels += self._shift
        self.targets[...] = self._labels[chosen]

    def close(self):
        """Do nothing: nothing runs."""


class FileLoader(object):
    """Files that the training process decodes itself."""

    def __init__(self, job, place):
        dataset, batch = job["loader"]["dataset"], job["batch_per_worker"]
        self._batches = batch_indices(dataset["samples"], batch, job["seed"], place.rank, place.workers)
        self._files = ImageFiles(dataset, job["workload"]["input_shape"], job["seed"])
        self.inputs = numpy.empty((batch,) + tuple(job["workload"]["input_shape"]), dtype=numpy.float32)
        self.targets = numpy.empty(batch, dtype=numpy.float32)

    def fill(self):
        """Replace the one slot."""
        epoch, chosen = next(self._batches)
        self._files.read_into(self.inputs, self.targets, epoch, chosen)

    def close(self):
        """Do nothing: nothing runs."""
