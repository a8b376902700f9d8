"""Datasets on disk as functions from ``(epoch, indices)`` to a whole batch, images channels last."""

import numpy

from steptime.worker.loaders.photographs import cropped_by_chances, decoded
from steptime.worker.sampling import read_arrays, read_index, scale_and_shift


class ArrayReader(object):
    """The whole set in memory as bytes, in the layout in which it is trained: a batch is one gather."""

    def __init__(self, dataset, input_shape):
        images, self._labels = read_arrays(dataset)
        if images[0].size != numpy.prod(input_shape):
            raise ValueError(
                "%s holds images of %s where the workload expects %s"
                % (dataset["path"], list(images.shape[1:]), list(input_shape))
            )
        scale, shift = scale_and_shift(dataset["transform"], images.shape[1])
        if len(input_shape) == 1:
            places = images[0, 0].size
            self._images = images.reshape(len(images), -1)
            self._scale, self._shift = scale.ravel().repeat(places), shift.ravel().repeat(places)
        else:
            self._images = numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))
            self._scale, self._shift = scale.ravel(), shift.ravel()

    def __call__(self, entry):
        _, indices = entry
        inputs = self._images[indices] * self._scale
        inputs += self._shift
        return inputs, self._labels[indices]


class PhotoReader(object):
    """Files decoded, resized, cropped and flipped by Pillow: ``read`` in whatever process, ``finish`` in training's.

    Between the two, images are bytes, a quarter of the floats that would have to be handed over.
    """

    def __init__(self, dataset, input_shape, seed):
        self._transform = dataset["transform"]
        self._height, self._width = self._transform["size"]
        self._shape = tuple(input_shape)
        self._channels = int(numpy.prod(input_shape)) // (self._height * self._width)
        self._paths, self._labels = read_index(dataset)
        self._scale, self._shift = (each.ravel() for each in scale_and_shift(self._transform, self._channels))
        self._seed = seed

    def read(self, entry):
        """Return ``(bytes, labels)`` of a batch.

        Raises ValueError when a file cannot be decoded.
        """
        epoch, indices = entry
        # A sample comes once per epoch, so that the first one makes the stream of a batch its own.
        stream = numpy.random.RandomState([self._seed, 15485863, epoch, int(indices[0])])
        chances = stream.random_sample((len(indices), 3))
        batch = numpy.empty((len(indices), self._height, self._width, self._channels), dtype=numpy.uint8)
        for index, chance, place in zip(indices, chances, batch):
            image = decoded(self._paths[index], self._channels, self._transform["resize"], draft=True)
            place[...] = cropped_by_chances(image, self._transform["size"], self._transform["flip"], chance)
        return batch, self._labels[indices]

    def finish(self, batch, labels):
        """Return the batch as normalised inputs of the workload's shape, but channels last."""
        inputs = batch * self._scale
        inputs += self._shift
        if len(self._shape) == 1:
            inputs = inputs.transpose(0, 3, 1, 2).reshape((-1,) + self._shape)
        return inputs, labels
