"""Image files as normalised arrays: Pillow decodes and resizes, numpy does the rest where the batch will lie."""

import numpy

from steptime.worker.loaders.photographs import cropped_by_chances, decoded
from steptime.worker.sampling import read_index, scale_and_shift


class ImageFiles(object):
    """The files of an ``image_folder``."""

    def __init__(self, dataset, input_shape, seed):
        transform = dataset["transform"]
        self._paths, self._labels = read_index(dataset)
        self._shorter, self._flip = transform["resize"], transform["flip"]
        self._size = height, width = transform["size"]
        self._channels = int(numpy.prod(input_shape)) // (height * width)
        self._scale, self._shift = scale_and_shift(transform, self._channels)
        self._seed = seed

    def read_into(self, inputs, targets, epoch, chosen):
        """Fill ``inputs``, float32 (batch,) + input shape, and ``targets``, (batch,), with the ``chosen`` samples.

        Raises ValueError, which names the file, when one cannot be decoded.
        """
        # A sample comes once per epoch, so that the first one makes the stream of a batch its own.
        stream = numpy.random.RandomState([self._seed, 15485863, epoch, int(chosen[0])])
        chances = stream.random_sample((len(chosen), 3))
        places = inputs.reshape((len(chosen), self._channels) + tuple(self._size))
        for index, chance, place in zip(chosen, chances, places):
            image = decoded(self._paths[index], self._channels, self._shorter, draft=True)
            pixels = cropped_by_chances(image, self._size, self._flip, chance)
            numpy.multiply(pixels.transpose(2, 0, 1), self._scale, out=place)
        places += self._shift
        targets[...] = self._labels[chosen]
