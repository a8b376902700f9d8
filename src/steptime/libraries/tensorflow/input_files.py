"""Datasets on disk as ``tf.data`` reads them, shared by TensorFlow's eager and its graph mode, from 1.15 on.

A source plans epochs in numpy, gives a dataset of batches, and knows which files a batch is made of. Images are
channels last. ``constant`` makes a tensor of an array: graph mode feeds arrays instead of writing them into its graph.
"""

import itertools

import numpy
import tensorflow as tf

from steptime.worker.augmentation import crops
from steptime.worker.image_layout import channels_last
from steptime.worker.samples import read_arrays, read_index, read_sizes, scale_and_shift


def epochs_of(order):
    """Yield each epoch and the indices of its batches, (batches, samples): the pipeline asks Python once per epoch."""
    for epoch, batches in itertools.groupby(order, key=lambda pair: pair[0]):
        yield epoch, numpy.stack([chosen for _, chosen in batches])


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
    as_bytes = False
    """Whether batches are left bytes, for a device to normalise."""

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

    def plan(self, _, chosen):
        """Return what the pipeline gets for an epoch: the indices of its batches, (batches, samples)."""
        return chosen

    def batches(self, epochs, threads):
        """Return the dataset of ``(inputs, targets)``."""
        return epochs.unbatch().map(self._gather, num_parallel_calls=threads)

    def _gather(self, chosen):
        chosen = tf.ensure_shape(chosen, (self._batch,))
        pixels = tf.gather(self._images, chosen)
        return pixels if self.as_bytes else self.normalised(pixels), tf.gather(self._labels, chosen)

    def normalised(self, pixels):
        """Return inputs of a batch of bytes, where these lie."""
        return tf.cast(pixels, tf.float32) * self._scale + self._shift

    def paths(self, _):
        """No file is read."""
        return []

    def pixels(self, path):
        """There is no file to be decoded."""
        raise NotImplementedError(path)


class FolderSource(object):
    """Each sample is a file; decoding and cropping is done per sample, all the rest per batch."""

    as_bytes = False
    """Whether batches are left bytes, for a device to normalise."""
    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 5), tf.int32))

    def __init__(self, dataset, input_shape, batch, seed, constant=tf.constant):
        self._transform = dataset["transform"]
        self._channels, self._height, self._width = input_shape
        self._batch = batch
        self._seed = seed
        self._sizes = read_sizes(dataset)
        self._paths, labels = read_index(dataset)
        self._path_tensor = constant(self._paths)
        self._labels = constant(labels)
        scale, shift = scale_and_shift(self._transform, self._channels)
        self._scale, self._shift = scale.ravel(), shift.ravel()

    def plan(self, epoch, chosen):
        """Return the indices of an epoch's samples, and left, top, width, height and flip of each."""
        chosen = chosen.ravel()
        boxes, flips = crops(self._transform, self._sizes[chosen], self._seed, epoch, chosen)
        return chosen, numpy.concatenate([boxes, flips[:, None].astype(numpy.int32)], axis=1)

    def batches(self, epochs, threads):
        """Return the dataset of ``(inputs, targets)``."""
        samples = epochs.map(self._look_up).unbatch().map(self._load, num_parallel_calls=threads)
        return samples.batch(self._batch, drop_remainder=True).map(self._finish)

    def _look_up(self, chosen, cut):
        return tf.gather(self._path_tensor, chosen), tf.gather(self._labels, chosen), cut

    def _load(self, path, label, cut):
        # Decoded whole, as by all loaders, though TensorFlow could decode the rectangle alone.
        part = tf.slice(self.pixels(path), [cut[1], cut[0], 0], [cut[3], cut[2], self._channels])
        crop = tf.cond(
            tf.reduce_all(tf.equal(cut[2:4], [self._width, self._height])),
            lambda: part,
            lambda: self._resized(part),
        )
        return tf.ensure_shape(crop, (self._height, self._width, self._channels)), label, tf.equal(cut[4], 1)

    def pixels(self, path):
        """Return a file as bytes, (height, width, channels)."""
        # PNG files too. The quicker cosine transform, which TensorFlow takes by itself, gives other pixels.
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=self._channels, dct_method="INTEGER_ACCURATE")

    def _resized(self, part):
        # Averaging over all pixels that shrink into one, as the other frameworks' loaders do.
        resized = tf.compat.v2.image.resize(part, (self._height, self._width), antialias=True)
        return tf.saturate_cast(tf.round(resized), tf.uint8)

    def _finish(self, images, labels, flips):
        if self._transform["flip"]:
            images = tf.compat.v2.where(flips[:, None, None, None], tf.reverse(images, axis=[2]), images)
        return images if self.as_bytes else self.normalised(images), labels

    def normalised(self, pixels):
        """Return inputs of a batch of bytes, where these lie."""
        return tf.cast(pixels, tf.float32) * self._scale + self._shift

    def paths(self, chosen):
        """Return the files of the samples ``chosen``."""
        return [self._paths[index] for index in chosen]


SOURCES = {"arrays": ArraySource, "image_folder": FolderSource}
