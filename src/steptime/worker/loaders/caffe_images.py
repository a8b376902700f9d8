"""Image files as normalised arrays: Pillow decodes and resizes, numpy does the rest where the batch will lie."""

import numpy

from steptime.worker.sampling import read_index, scale_and_shift


class ImageFiles(object):
    """The files of an ``image_folder``."""

    def __init__(self, dataset, input_shape, seed):
        transform = dataset["transform"]
        self._paths, self._labels = read_index(dataset)
        self._shorter, self._flip = transform["resize"], transform["flip"]
        self._height, self._width = transform["size"]
        self._channels = int(numpy.prod(input_shape)) // (self._height * self._width)
        self._mode = "L" if self._channels == 1 else "RGB"
        self._scale, self._shift = scale_and_shift(transform, self._channels)
        self._seed = seed

    def read_into(self, inputs, targets, epoch, chosen):
        """Fill ``inputs``, float32 (batch,) + input shape, and ``targets``, (batch,), with the ``chosen`` samples.

        Raises ValueError, which names the file, when one cannot be decoded.
        """
        # A sample comes once per epoch, so that the first one makes the stream of a batch its own.
        stream = numpy.random.RandomState([self._seed, 15485863, epoch, int(chosen[0])])
        chances = stream.random_sample((len(chosen), 3))
        places = inputs.reshape((len(chosen), self._channels, self._height, self._width))
        for index, chance, place in zip(chosen, chances, places):
            pixels = self._augmented(self._decoded(self._paths[index]), chance)
            numpy.multiply(pixels.transpose(2, 0, 1), self._scale, out=place)
        places += self._shift
        targets[...] = self._labels[chosen]

    def _decoded(self, path):
        """Return an image whose shorter side is the transform's ``resize``."""
        from PIL import Image

        try:
            with Image.open(path) as file:
                # A JPEG is decoded at an eighth, a quarter or half its size where that is still large enough.
                file.draft(self._mode, (self._shorter, self._shorter))
                image = file.convert(self._mode)
        except Exception as error:  # decoders raise many types; whichever it is, the file must be named
            raise ValueError("%s cannot be decoded: %s" % (path, error)) from error
        side = min(image.size)
        if side == self._shorter:
            return image
        size = [max(self._shorter, round(length * self._shorter / float(side))) for length in image.size]
        return image.resize(tuple(size), Image.BILINEAR)

    def _augmented(self, image, chance):
        """Return a random part of the image as bytes: height, width, channels."""
        left = int(chance[0] * (image.size[0] - self._width + 1))
        top = int(chance[1] * (image.size[1] - self._height + 1))
        pixels = numpy.asarray(image.crop((left, top, left + self._width, top + self._height)))
        if self._flip and chance[2] < 0.5:  # noqa: PLR2004 - one half is what the protocol says
            pixels = pixels[:, ::-1]
        return pixels.reshape(self._height, self._width, self._channels)
