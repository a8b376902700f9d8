"""Photographs by Pillow as bytes: decoded, resized, cropped at random and flipped."""

import os
import random

import numpy

from steptime.worker.samples import read_index, scale_and_shift

_HALF = 0.5
"""The probability of a flip, by the worker protocol."""


def decoded(path, channels, shorter):
    """Return the image of a file, grey for one channel and RGB else, with its shorter side ``shorter`` pixels long.

    A JPEG is decoded at its full size: Pillow and TensorFlow can decode it at half its size or less, MXNet cannot, and
    all loaders do the same work.

    Raises ValueError, naming the file, when it cannot be decoded.
    """
    from PIL import Image

    mode = "L" if channels == 1 else "RGB"
    try:
        with Image.open(path) as file:
            image = file.convert(mode)
        side = min(image.size)
        if side == shorter:
            return image
        size = [max(shorter, round(length * shorter / float(side))) for length in image.size]
        return image.resize(tuple(size), Image.BILINEAR)
    except Exception as error:  # decoders raise many types; whichever it is, the file must be named
        raise ValueError("%s cannot be decoded: %s" % (os.path.abspath(path), error)) from error


def cropped(image, size, corner, flipped):
    """Return bytes (height, width, channels) of the part of ``image`` that begins at ``corner``.

    Args:
        image: of ``decoded``.
        size: height and width of the part.
        corner: its left and its top.
        flipped: whether left and right change places.
    """
    (height, width), (left, top) = size, corner
    pixels = numpy.asarray(image.crop((left, top, left + width, top + height)))
    if flipped:
        pixels = pixels[:, ::-1]
    return pixels.reshape(height, width, -1)


class PhotographFiles(object):
    """The files of an ``image_folder`` dataset, as crops in bytes, drawn at random and in the same way in every run.

    ``labels``
        int64, one for each file.
    ``channels``, ``size``
        Of a crop; the size is ``(height, width)``.
    ``scale``, ``shift``
        Float32 (channels, 1, 1), with which ``byte * scale + shift`` is normalised.
    """

    def __init__(self, dataset, input_shape, seed):
        """Read the index of ``dataset``; ``input_shape`` is the workload's, ``seed`` the job's.

        Raises ValueError when the index holds another number of files than the job says.
        """
        transform = dataset["transform"]
        self._paths, self.labels = read_index(dataset)
        self._shorter, self._flip = transform["resize"], transform["flip"]
        self._seed = seed
        self.size = height, width = tuple(transform["size"])
        self.channels = int(numpy.prod(input_shape)) // (height * width)
        self.scale, self.shift = scale_and_shift(transform, self.channels)

    def __len__(self):
        return len(self._paths)

    def normalised(self, crop, out=None):
        """Return a crop as float32 (channels, height, width), in ``out`` if it is given."""
        image = numpy.multiply(crop.transpose(2, 0, 1), self.scale, out=out)
        image += self.shift
        return image

    def batch_crops(self, epoch, indices):
        """Yield the crop of each of a batch's samples, uint8 (height, width, channels).

        Raises ValueError, which names the file, when one cannot be decoded.
        """
        # A sample comes once per epoch, so that the first one makes the random numbers of a batch its own.
        stream = numpy.random.RandomState([self._seed, 15485863, epoch, int(indices[0])])
        height, width = self.size
        for index, (right, down, turn) in zip(indices, stream.random_sample((len(indices), 3))):
            image = decoded(self._paths[index], self.channels, self._shorter)
            left = int(right * (image.size[0] - width + 1))
            top = int(down * (image.size[1] - height + 1))
            yield cropped(image, self.size, (left, top), self._flip and turn < _HALF)

    def keyed_crop(self, key):
        """Return the crop of one sample; its random numbers depend on the seed and ``key``, epoch * files + index.

        Raises ValueError, which names the file, when it cannot be decoded.
        """
        image = decoded(self._paths[key % len(self._paths)], self.channels, self._shorter)
        stream = random.Random(self._seed << 64 | key)  # noqa: S311 - augmentation, no secret
        height, width = self.size
        left = stream.randint(0, image.size[0] - width)
        top = stream.randint(0, image.size[1] - height)
        return cropped(image, self.size, (left, top), self._flip and stream.random() < _HALF)
