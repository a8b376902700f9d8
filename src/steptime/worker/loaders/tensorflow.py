"""Batches from a dataset on disk by ``tf.data``, and synthetic ones as tensors; images are channels last."""

import itertools

import numpy
import tensorflow as tf

from steptime.worker.batches import synthetic_batches
from steptime.worker.sampling import batch_indices, read_arrays, read_index, scale_and_shift

_PREFETCHED_BATCHES = 2
_LARGEST = 2**31 - 1


def synthetic(workload, batch, count, seed, rank):
    """Return a ``SyntheticBatches``; arguments are those of ``synthetic_batches``."""
    return SyntheticBatches(synthetic_batches(workload, batch, count, seed, rank))


class SyntheticBatches(object):
    """The same few batches, over and over, on the device in force."""

    threads = 0

    def __init__(self, pairs):
        own = [(tf.constant(_channels_last(inputs)), tf.constant(_channels_last(targets))) for inputs, targets in pairs]
        self._batches = itertools.cycle(own)

    def feed(self, step):
        """Return a function without arguments that runs ``step``, which is compiled, on the next batch."""
        compiled = tf.function(step, autograph=False)
        return lambda: compiled(*next(self._batches))


def _channels_last(array):
    return numpy.ascontiguousarray(numpy.moveaxis(array, 1, -1)) if array.ndim > 2 else array  # noqa: PLR2004 - images


def native(loader, input_shape, batch, seed, rank, workers, device=None):  # noqa: PLR0913, PLR0917 - one per fact
    """Return a ``NativeBatches`` over the dataset that the job's ``loader`` describes.

    Args:
        loader: of the kind ``native``.
        input_shape: of the workload, channels first; a flat one gets flat samples.
        batch: samples per batch.
        seed: of the job.
        rank: of the worker.
        workers: how many there are.
        device: a GPU to which batches are copied ahead; None leaves them on the host.

    Raises ValueError when the dataset does not hold what the job says.
    """
    dataset = loader["dataset"]
    order = lambda: batch_indices(dataset["samples"], batch, seed, rank, workers)  # noqa: E731 - it must start anew
    order()  # a batch that is too large is told here, and not from a thread of the pipeline
    make = {"arrays": _Arrays, "image_folder": _Folder}[dataset["form"]]
    stream = numpy.random.RandomState([seed, 15485863, rank])
    return NativeBatches(make(dataset, tuple(input_shape), batch, stream), order, loader["processes"], device)


class NativeBatches(object):
    """An iterator over ``(inputs, targets)`` without end, prefetched by threads of its own.

    ``threads`` is how many of them prepare samples: the ``processes`` of the loader, and at least one, since tf.data
    always loads beside the training.
    """

    def __init__(self, source, order, processes, device):
        self.threads = max(1, processes)
        self._source = source
        self._order = order
        self._device = device
        self._served = 0
        epochs = tf.data.Dataset.from_generator(
            lambda: (source.plan(numpy.stack(chosen)) for chosen in _epochs(order())),
            output_signature=source.signature,
        )
        batches = source.batches(epochs, self.threads).with_options(self._options()).prefetch(_PREFETCHED_BATCHES)
        if device is not None:
            batches = batches.apply(tf.data.experimental.prefetch_to_device(device))
        self._iterator = iter(batches)

    def _options(self):
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.threads
        options.threading.max_intra_op_parallelism = 1
        options.autotune.enabled = False  # nothing is left for it to choose, and it is a thread more
        options.deterministic = True
        return options

    def __iter__(self):
        return self

    def __next__(self):
        """Return the next batch; raises what ``feed`` raises."""
        return self._count(lambda: next(self._iterator))

    def feed(self, step):
        """Return a function without arguments that takes the next batch, runs ``step`` on it and returns its result.

        On the host, taking the batch is part of the compiled graph, which saves a call from Python.

        Args:
            step: a function of inputs and targets; it is compiled here.

        Raises ValueError that names the file, when one could not be decoded.
        """
        if self._device is None:
            whole = tf.function(lambda: step(*next(self._iterator)), autograph=False)
        else:
            compiled = tf.function(step, autograph=False)

            def whole():
                return compiled(*next(self._iterator))

        return lambda: self._count(whole)

    def _count(self, take):
        try:
            result = take()
        except tf.errors.OpError as error:
            self._name_the_file(error)
            raise
        self._served += 1
        return result

    def _name_the_file(self, error):
        """TensorFlow does not say which file it was; the batch is known, so each of its files is tried again."""
        _, chosen = next(itertools.islice(self._order(), self._served, None))
        for path in self._source.paths(chosen):
            try:
                self._source.pixels(path)
            except tf.errors.OpError as cause:  # noqa: PERF203 - speed does not matter any more
                raise ValueError("%s cannot be decoded: %s" % (path, cause.message)) from error


def _epochs(order):
    """Yield the batches of each epoch as one list of index arrays: the pipeline asks Python once per epoch."""
    for _, batches in itertools.groupby(order, key=lambda pair: pair[0]):
        yield [chosen for _, chosen in batches]


class _Arrays(object):
    """All samples lie in memory as bytes, and a batch is gathered at once."""

    signature = tf.TensorSpec((None, None), tf.int64)

    def __init__(self, dataset, input_shape, batch, _):
        images, labels = read_arrays(dataset)
        scale, shift = scale_and_shift(dataset["transform"], images.shape[1])
        full = numpy.ones(images.shape[1:], dtype=numpy.float32)
        if len(input_shape) == 1:
            self._images = tf.constant(images.reshape(len(images), -1))
            self._scale, self._shift = (scale * full).ravel(), (shift * full).ravel()
        else:
            self._images = tf.constant(_channels_last(images))
            self._scale, self._shift = scale.ravel(), shift.ravel()
        self._labels = tf.constant(labels)
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


class _Folder(object):
    """Each sample is a file; decoding and cropping is done per sample, all the rest per batch."""

    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 3), tf.int32))

    def __init__(self, dataset, input_shape, batch, stream):
        self._transform = dataset["transform"]
        self._channels, self._height, self._width = input_shape
        self._batch = batch
        self._stream = stream
        self._paths, labels = read_index(dataset)
        self._path_tensor = tf.constant(self._paths)
        self._labels = tf.constant(labels)
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
        return crop, label, chance[2] % 2 == 0

    def pixels(self, path):
        """Return a file as bytes, (height, width, channels), with the shorter side as long as the job wants it."""
        pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=self._channels)  # PNG files too
        return tf.cond(
            tf.reduce_min(tf.shape(pixels)[:2]) == self._transform["resize"],
            lambda: pixels,
            lambda: self._shrink(pixels),
        )

    def _shrink(self, pixels):
        size = tf.cast(tf.shape(pixels)[:2], tf.float32)
        factor = self._transform["resize"] / tf.reduce_min(size)
        wanted = tf.cast(tf.round(size * factor), tf.int32)
        # Averaging over all pixels that shrink into one, as the other frameworks' loaders do.
        shrunk = tf.image.resize(pixels, wanted, antialias=True)
        return tf.saturate_cast(tf.round(shrunk), tf.uint8)

    def _finish(self, images, labels, flips):
        if self._transform["flip"]:
            images = tf.where(flips[:, None, None, None], tf.reverse(images, axis=[2]), images)
        return tf.cast(images, tf.float32) * self._scale + self._shift, labels

    def paths(self, chosen):
        """Return the files of the samples ``chosen``."""
        return [self._paths[index] for index in chosen]
