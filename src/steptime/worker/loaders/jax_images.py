"""Datasets on disk as functions from ``(epoch, indices)`` to a whole batch, images channels last."""

import os

import numpy

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
        self._mode = "L" if self._channels == 1 else "RGB"
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
            place[...] = self._augmented(self._decoded(self._paths[index]), chance)
        return batch, self._labels[indices]

    def finish(self, batch, labels):
        """Return the batch as normalised inputs of the workload's shape, but channels last."""
        inputs = batch * self._scale
        inputs += self._shift
        if len(self._shape) == 1:
            inputs = inputs.transpose(0, 3, 1, 2).reshape((-1,) + self._shape)
        return inputs, labels

    def _decoded(self, path):
        """Return an image whose shorter side is the transform's ``resize``."""
        from PIL import Image

        shorter = self._transform["resize"]
        try:
            with Image.open(path) as file:
                # A JPEG is decoded at an eighth, a quarter or half its size where that is still large enough.
                file.draft(self._mode, (shorter, shorter))
                image = file.convert(self._mode)
        except Exception as error:  # decoders raise many types; whichever it is, the file must be named
            raise ValueError("%s cannot be decoded: %s" % (os.path.abspath(path), error)) from error
        side = min(image.size)
        if side == shorter:
            return image
        size = [max(shorter, round(length * shorter / float(side))) for length in image.size]
        return image.resize(size, Image.BILINEAR)

    def _augmented(self, image, chance):
        left = int(chance[0] * (image.size[0] - self._width + 1))
        top = int(chance[1] * (image.size[1] - self._height + 1))
        pixels = numpy.asarray(image.crop((left, top, left + self._width, top + self._height)))
        if self._transform["flip"] and chance[2] < 0.5:  # noqa: PLR2004 - one half is what the protocol says
            pixels = pixels[:, ::-1]
        return pixels.reshape(self._height, self._width, self._channels)
