"""Batches of the reference, one after the other in the training process: image files are read by Pillow."""

import numpy

from steptime.libraries.pillow.photographs import cropped, decoded
from steptime.worker.batches import Batches, open_batches
from steptime.worker.samples import read_index, scale_and_shift


def open_reference_batches(job, rank, workers, put):
    """Return the ``Batches`` of a worker; ``put`` is that of ``open_batches``.

    Raises ValueError when the dataset does not hold what the job says, or holds a file that cannot be decoded.
    """
    squared = job["workload"]["loss"] == "mean_squared_error"

    def open_folder(order):
        stream = numpy.random.RandomState([job["seed"], 15485863, rank])
        reader = _FolderReader(job["loader"]["dataset"], job["workload"]["input_shape"], stream)

        def batch(chosen):
            inputs = reader.inputs(chosen)
            return put(inputs, inputs if squared else reader.labels[chosen])

        return Batches(batch(chosen) for _, chosen in order)

    return open_batches(job, rank, workers, put, open_folder)


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
