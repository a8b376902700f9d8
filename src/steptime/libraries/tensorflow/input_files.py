"""Datasets on disk as ``tf.data`` reads them, shared by TensorFlow's eager and its graph mode, from 1.15 on.

A source plans epochs in numpy, gives a dataset of batches, and knows which files a batch is made of. Images are
channels last. ``constant`` makes a tensor of an array: graph mode feeds arrays instead of writing them into its graph.
"""

import itertools

import numpy
import tensorflow as tf

from steptime.worker.image_layout import channels_last
from steptime.worker.samples import read_arrays, read_index, scale_and_shift

_LARGEST = 2**31 - 1


def epochs_of(order):
    """Yield the batches of each epoch as one list of index arrays: the pipeline asks Python once per epoch."""
    for _, batches in itertools.groupby(order, key=lambda pair: pair[0]):
        yield [chosen for _, chosen in batches]


def file_at_fault(source, chosen, decode):
    """Return which file of the samples ``chosen`` cannot be decoded, and why; None if all can.

    TensorFlow does not say which file it was; the batch is known, so each of its files is tried again by ``decode``.
    """
    for path in source.paths(chosen):
        try:
            decode(path)
        except tf.errors.OpError as cause:  # noqa: PERF203 - speed does not matter any more
            return "%s cannot be decoded: %s" % (path, cause.message)
    return None


class ArraySource(object):
    """All samples lie in memory as bytes, and a batch is gathered at once."""

    signature = tf.TensorSpec((None, None), tf.int64)

    def __init__(self, dataset, input_shape, batch, _, constant=tf.constant):
        images, labels = read_arrays(dataset, input_shape)
        scale, shift = scale_and_shift(dataset["transform"], images.shape[1])
        full = numpy.ones(images.shape[1:], dtype=numpy.float32)
        if len(input_shape) == 1:
            self._images = constant(images.reshape(len(images), -1))
            self._scale, self._shift = (scale * full).ravel(), (shift * full).ravel()
        else:
            self._images = constant(channels_last(images))
            self._scale, self._shift = scale.ravel(), shift.ravel()
        self._labels = constant(labels)
        self._batch = batch

    def plan(self, chosen):
        """Return what the pipeline gets for an epoch: the indices of its batches, (batches, samples)."""
        return chosen

    def batches(self, epochs, threads):
        """Return the dataset of ``(inputs, targets)``."""
        return epochs.unbatch().map(self._gather, num_parallel_calls=threads)

    def _gather(self, chosen):
        chosen = tf.ensure_shape(chosen, (self._batch,))
        inputs = tf.cast(tf.gather(self._images, chosen), tf.float32) * self._scale + self._shift
        return inputs, tf.gather(self._labels, chosen)

    def paths(self, _):
        """No file is read."""
        return []

    def pixels(self, path):
        """There is no file to be decoded."""
        raise NotImplementedError(path)


class FolderSource(object):
    """Each sample is a file; decoding and cropping is done per sample, all the rest per batch."""

    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 3), tf.int32))

    def __init__(self, dataset, input_shape, batch, stream, constant=tf.constant):
        self._transform = dataset["transform"]
        self._channels, self._height, self._width = input_shape
        self._batch = batch
        self._stream = stream
        self._paths, labels = read_index(dataset)
        self._path_tensor = constant(self._paths)
        self._labels = constant(labels)
        scale, shift = scale_and_shift(self._transform, self._channels)
        self._scale, self._shift = scale.ravel(), shift.ravel()

    def plan(self, chosen):
        """Return the indices of an epoch's samples, and three random numbers for each: top, left and flip."""
        chosen = chosen.ravel()
        return chosen, self._stream.randint(0, _LARGEST, (len(chosen), 3)).astype(numpy.int32)

    def batches(self, epochs, threads):
        """Return the dataset of ``(inputs, targets)``."""
        samples = epochs.map(self._look_up).unbatch().map(self._load, num_parallel_calls=threads)
        return samples.batch(self._batch, drop_remainder=True).map(self._finish)

    def _look_up(self, chosen, chance):
        return tf.gather(self._path_tensor, chosen), tf.gather(self._labels, chosen), chance

    def _load(self, path, label, chance):
        pixels = self.pixels(path)
        shape = tf.shape(pixels)
        top = chance[0] % (shape[0] - self._height + 1)
        left = chance[1] % (shape[1] - self._width + 1)
        crop = tf.slice(pixels, [top, left, 0], [self._height, self._width, self._channels])
        return crop, label, tf.equal(chance[2] % 2, 0)

    def pixels(self, path):
        """Return a file as bytes, (height, width, channels), with the shorter side as long as the job wants it."""
        # PNG files too. The quicker cosine transform, which TensorFlow takes by itself, gives other pixels.
        pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=self._channels, dct_method="INTEGER_ACCURATE")
        return tf.cond(
            tf.equal(tf.reduce_min(tf.shape(pixels)[:2]), self._transform["resize"]),  # '==' compares objects in 1.15
            lambda: pixels,
            lambda: self._shrink(pixels),
        )

    def _shrink(self, pixels):
        size = tf.cast(tf.shape(pixels)[:2], tf.float32)
        factor = self._transform["resize"] / tf.reduce_min(size)
        wanted = tf.cast(tf.round(size * factor), tf.int32)
        # Averaging over all pixels that shrink into one, as the other frameworks' loaders do.
        shrunk = tf.compat.v2.image.resize(pixels, wanted, antialias=True)
        return tf.saturate_cast(tf.round(shrunk), tf.uint8)

    def _finish(self, images, labels, flips):
        if self._transform["flip"]:
            images = tf.compat.v2.where(flips[:, None, None, None], tf.reverse(images, axis=[2]), images)
        return tf.cast(images, tf.float32) * self._scale + self._shift, labels

    def paths(self, chosen):
        """Return the files of the samples ``chosen``."""
        return [self._paths[index] for index in chosen]


SOURCES = {"arrays": ArraySource, "image_folder": FolderSource}
