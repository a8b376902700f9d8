"""Batches from a dataset on disk with numpy and Pillow alone, one after the other in the training process."""

import numpy

from steptime.libraries.pillow.photographs import cropped, decoded
from steptime.worker.samples import batch_indices, read_arrays, read_index, scale_and_shift


def native_batches(loader, input_shape, batch, seed, rank, workers):  # noqa: PLR0913, PLR0917 - one per fact of the job
    """Yield ``(inputs, targets)`` without end: float32 (batch, channels, height, width), and int64 class indices.

    Args:
        loader: the job's ``loader``, of the kind ``native``.
        input_shape: of the workload; a flat one gets flat samples.
        batch: samples per batch.
        seed: of the job.
        rank: of the worker.
        workers: how many there are.

    Raises ValueError when the dataset does not hold what the job says, or holds a file that cannot be decoded.
    """
    dataset = loader["dataset"]
    indices = batch_indices(dataset["samples"], batch, seed, rank, workers)
    read = {"arrays": _ArrayReader, "image_folder": _FolderReader}[dataset["form"]](
        dataset, input_shape, numpy.random.RandomState([seed, 15485863, rank])
    )
    shape = (batch,) + tuple(input_shape)
    return ((read.inputs(chosen).reshape(shape), read.labels[chosen]) for _, chosen in indices)


class _ArrayReader(object):
    """All samples lie in memory as bytes."""

    def __init__(self, dataset, _, __):
        self._images, self.labels = read_arrays(dataset)
        self._scale, self._shift = scale_and_shift(dataset["transform"], self._images.shape[1])

    def inputs(self, chosen):
        return self._images[chosen] * self._scale + self._shift


class _FolderReader(object):
    """Each sample is a file."""

    def __init__(self, dataset, input_shape, stream):
        self._transform = dataset["transform"]
        self._channels = input_shape[0]
        self._stream = stream
        self._paths, self.labels = read_index(dataset)
        self._scale, self._shift = scale_and_shift(self._transform, self._channels)

    def inputs(self, chosen):
        pixels = numpy.stack([self._pixels(self._paths[index]) for index in chosen])
        return pixels.transpose(0, 3, 1, 2) * self._scale + self._shift

    def _pixels(self, path):
        """Return one augmented image as bytes: height, width, channels."""
        transform, stream = self._transform, self._stream
        image = decoded(path, self._channels, transform["resize"])
        height, width = transform["size"]
        left = stream.randint(0, image.size[0] - width + 1)
        top = stream.randint(0, image.size[1] - height + 1)
        return cropped(image, (height, width), (left, top), transform["flip"] and stream.randint(2))
