"""Datasets on disk as ``tf.data`` reads them, shared by TensorFlow's eager and its graph mode, from 1.15 on.

A source plans epochs in numpy, gives a dataset of batches, and knows which files a batch is made of. Images are
channels last. ``constant`` makes a tensor of an array: graph mode feeds arrays instead of writing them into its graph.
"""

import itertools
import json
import os
import re
from typing import Any, Callable, Dict

import numpy
import tensorflow as tf

from steptime.worker.samples import (
    IGNORED,
    hidden_places,
    read_arrays,
    read_index,
    read_shards,
    read_sizes,
    read_tokens,
    scale_and_shift,
    undecodable,
)
from steptime.worker.stored_images import crops, damaged, require_whole
from steptime.worker.weights import channels_last


def epochs_of(order):
    """Yield each epoch and the indices of its batches, (batches, samples): the pipeline asks Python once per epoch."""
    for epoch, batches in itertools.groupby(order, key=lambda pair: pair[0]):
        yield epoch, numpy.stack([chosen for _, chosen in batches])


def file_at_fault(source, chosen, decode):
    """Return which file of the samples ``chosen`` cannot be decoded, and why; None if all can.

    TensorFlow does not say which file it was; the batch is known, so each of its files is tried again by ``decode``,
    the source's ``pixels`` run at once.
    """
    for index in chosen:
        try:
            decode(index)
        except tf.errors.OpError as cause:  # noqa: PERF203 - speed does not matter any more
            return source.fault(index, cause)
    return None


def _first_line(cause):
    """Return the message of an error of TensorFlow, without the operations in front of it and behind."""
    return re.sub(r"\{\{.*?\}\} ?| ?\[(\[|Op:).*", "", cause.message.splitlines()[0])


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

    def pixels(self, index):
        """Return a sample as bytes: there is no file that could be broken."""
        return self._images[index]


class TokenSource(object):
    """One row of tokens in memory: the samples of ``TokenSamples``. A plan has, where tokens are hidden, which."""

    as_bytes = False
    """Whether batches are bytes: tokens go to a device as they are."""

    def __init__(self, dataset, input_shape, batch, _, constant=tf.constant):
        self._tokens = constant(read_tokens(dataset, input_shape))
        self._length, self._batch = input_shape[0], batch
        self._hidden_by = dataset.get("hidden_by")
        indices, places = tf.TensorSpec((None, None), tf.int64), tf.TensorSpec((None, None, None), tf.bool)
        self.signature = indices if self._hidden_by is None else (indices, places)

    def plan(self, _, chosen):
        """Return what the pipeline gets for an epoch: the indices of its batches, (batches, samples)."""
        if self._hidden_by is None:
            return chosen
        return chosen, numpy.stack([hidden_places(each, self._length) for each in chosen])

    def batches(self, epochs, threads):
        """Return the dataset of ``(inputs, targets)``."""
        return epochs.unbatch().map(self._gather, num_parallel_calls=threads)

    def _gather(self, chosen, hidden=None):
        starts = tf.ensure_shape(chosen, (self._batch,)) * self._length
        rows = tf.cast(tf.gather(self._tokens, starts[:, None] + tf.range(self._length + 1, dtype=tf.int64)), tf.int64)
        if hidden is None:
            return rows[:, :-1], rows[:, 1:]
        hidden = tf.ensure_shape(hidden, (self._batch, self._length))
        token, ignored = (tf.constant(each, tf.int64) for each in (self._hidden_by, IGNORED))
        return tf.where(hidden, token, rows[:, :-1]), tf.where(hidden, rows[:, :-1], ignored)

    def normalised(self, tokens):
        """Return inputs of a batch, where these lie."""
        return tokens

    def pixels(self, index):
        """Return the first token of a sample: no file of its own could be broken."""
        return self._tokens[index * self._length]


class _ImageSource(object):
    """Each sample is an image file; decoding and cropping is done per sample, all the rest per batch.

    Kinds differ in how a file is reached: ``_entries`` makes a dataset of rectangles, each with what ``_opened`` makes
    the bytes of a file and its label of.
    """

    as_bytes = False
    """Whether batches are left bytes, for a device to normalise."""
    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 5), tf.int32))
    _open: Callable[..., Any]
    _entries: Callable[..., Any]
    _opened: Callable[..., Any]

    def __init__(self, dataset, input_shape, batch, seed, constant=tf.constant):
        self._transform = dataset["transform"]
        self._channels, self._height, self._width = input_shape
        self._batch = batch
        self._seed = seed
        self._sizes = read_sizes(dataset)
        self._paths, labels = read_index(dataset)
        scale, shift = scale_and_shift(self._transform, self._channels)
        self._scale, self._shift = scale.ravel(), shift.ravel()
        self._open(dataset, labels, constant)

    def plan(self, epoch, chosen):
        """Return the indices of an epoch's samples, and left, top, width, height and flip of each."""
        chosen = chosen.ravel()
        boxes, flips = crops(self._transform, self._sizes[chosen], self._seed, epoch, chosen)
        return chosen, numpy.concatenate([boxes, flips[:, None].astype(numpy.int32)], axis=1)

    def batches(self, epochs, threads):
        """Return the dataset of ``(inputs, targets)``."""
        samples = self._entries(epochs).map(self._load, num_parallel_calls=threads)
        return samples.batch(self._batch, drop_remainder=True).map(self._finish)

    def _load(self, cut, *entry):
        content, label = self._opened(*entry)
        # Decoded whole, as by all loaders, though TensorFlow could decode the rectangle alone.
        part = tf.slice(self._decoded(content), [cut[1], cut[0], 0], [cut[3], cut[2], self._channels])
        crop = tf.cond(
            tf.reduce_all(tf.equal(cut[2:4], [self._width, self._height])),
            lambda: part,
            lambda: self._resized(part),
        )
        return tf.ensure_shape(crop, (self._height, self._width, self._channels)), label, tf.equal(cut[4], 1)

    def _decoded(self, content):
        """Return an image file as bytes, (height, width, channels)."""
        # PNG files too. The quicker cosine transform, which TensorFlow takes by itself, gives other pixels.
        return tf.io.decode_jpeg(content, channels=self._channels, dct_method="INTEGER_ACCURATE")

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


class FolderSource(_ImageSource):
    """Each image is a file of its own."""

    def _open(self, _, labels, constant):
        self._path_tensor = constant(self._paths)
        self._labels = constant(labels)

    def _entries(self, epochs):
        return epochs.map(
            lambda chosen, cut: (cut, tf.gather(self._path_tensor, chosen), tf.gather(self._labels, chosen))
        ).unbatch()

    def _opened(self, path, label):
        return tf.io.read_file(path), label

    def pixels(self, index):
        """Return an image as bytes, (height, width, channels)."""
        return self._decoded(tf.io.read_file(self._paths[index]))

    def fault(self, index, cause):
        """Return the message about an image on which TensorFlow raised ``cause``."""
        return undecodable(self._paths[index], _first_line(cause))


class RecordSource(_ImageSource):
    """Images are records of TFRecord shards, which are read one after the other, each from its beginning to its end.

    ``tf.data`` cannot read a record by its place. The protocol's order changes within one shard only
    (``worker/samples.py``), so that a shard's records are read at once, and are taken from memory in that order: where
    others have a shuffle buffer, one shard is held.
    """

    def _open(self, dataset, _, constant):
        require_whole(dataset)
        with open(dataset["index"]) as file:
            names = json.load(file)["shards"]
        members = read_shards(dataset["index"])
        self._places = numpy.zeros((len(self._paths), 2), dtype=numpy.int64)
        for number, shard in enumerate(members):
            self._places[shard, 0], self._places[shard, 1] = number, numpy.arange(len(shard))
        self._shards = [os.path.join(dataset["root"], name) for name in names]
        self._counts = [len(shard) for shard in members]
        self._shard_tensor = constant(self._shards)
        self._count_tensor = constant(numpy.array(self._counts, dtype=numpy.int64))
        self._place_tensor = constant(self._places)

    def _entries(self, epochs):
        return epochs.flat_map(self._entries_of_epoch)

    def _entries_of_epoch(self, chosen, cut):
        places = tf.gather(self._place_tensor, chosen)
        shards = places[:, 0]
        starts = tf.reshape(tf.where(tf.concat([[True], tf.not_equal(shards[1:], shards[:-1])], axis=0)), [-1])
        ends = tf.concat([starts[1:], tf.shape(chosen, out_type=tf.int64)], axis=0)
        turns = tf.data.Dataset.from_tensor_slices((tf.gather(shards, starts), starts, ends))

        def entries_of_shard(shard, start, end):
            path, count = tf.gather(self._shard_tensor, shard), tf.gather(self._count_tensor, shard)
            wanted, own_cut = places[start:end, 1], cut[start:end]
            whole = tf.data.TFRecordDataset(path).batch(count)
            return whole.map(lambda records: (own_cut, tf.gather(records, wanted))).unbatch()

        return turns.flat_map(entries_of_shard)

    def _opened(self, record):
        features = {
            "image/encoded": tf.io.FixedLenFeature((), tf.string),
            "image/class/label": tf.io.FixedLenFeature((), tf.int64),
        }
        example = tf.io.parse_single_example(record, features)
        return example["image/encoded"], example["image/class/label"]

    def pixels(self, index):
        """Return an image as bytes, (height, width, channels); its whole shard is read, as in training."""
        shard, place = self._places[index]
        whole = tf.data.TFRecordDataset(self._shards[shard]).batch(self._counts[shard])
        content, _ = self._opened(tf.data.experimental.get_single_element(whole)[place])
        return self._decoded(content)

    def fault(self, index, cause):
        """Return the message about an image on which TensorFlow raised ``cause``: what its whole shard may have."""
        shard, place = self._places[index]
        why = _first_line(cause)
        if isinstance(cause, tf.errors.InvalidArgumentError):
            why = "its record %d cannot be decoded: %s" % (place, why)
        return damaged(self._shards[shard], why)


SOURCES: Dict[str, Any] = {
    "arrays": ArraySource,
    "tokens": TokenSource,
    "image_folder": FolderSource,
    "tfrecord": RecordSource,
}
