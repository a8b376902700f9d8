"""Batches from a dataset on disk by ``tf.data``, and synthetic ones as tensors; images are channels last."""

import itertools

import tensorflow as tf

from steptime.libraries.tensorflow.input_files import SOURCES, epochs_of, file_at_fault
from steptime.worker.batches import worker_order
from steptime.worker.samples import PREFETCHED_PER_HELPER, synthetic_batches
from steptime.worker.weights import channels_last


def open_tensorflow_batches(job, rank, workers, device=None):
    """Return the ``SyntheticBatches`` or ``NativeBatches`` of a worker, which feed its step.

    Args:
        job: the job.
        rank: of the worker.
        workers: how many there are.
        device: a GPU to which batches are copied ahead, as bytes that it normalises; None leaves them on the host.

    Raises ValueError when the dataset does not hold what the job asks for.
    """
    loader = job["loader"]
    if loader["kind"] == "synthetic":
        return SyntheticBatches(synthetic_batches(job, rank))
    order = lambda: worker_order(job, rank, workers)  # noqa: E731 - it must start anew
    order()  # raises here, and not from a thread of the pipeline, when a batch is too large
    shape = tuple(job["workload"]["input_shape"])
    source = SOURCES[loader["dataset"]["form"]](loader["dataset"], shape, job["batch_per_worker"], job["seed"])
    return NativeBatches(source, order, loader["processes"], device)


def batches_of(source, epochs, helpers):
    """Return the dataset of a source's batches, which so many threads prepare ahead.

    With none, batches are prepared when they are asked for, by the one thread without which ``tf.data`` cannot run, and
    which is ahead by one sample at most: without any parallel call, the pipeline waits for itself for ever.

    Args:
        source: one of ``SOURCES``.
        epochs: the dataset of its plans.
        helpers: the ``processes`` of the loader, which are threads here.
    """
    batches = source.batches(epochs, max(1, helpers)).with_options(_pipeline_options(helpers))
    return batches.prefetch(PREFETCHED_PER_HELPER * helpers) if helpers else batches


def batches_ahead(helpers):
    """Return how many batches of ``batches_of`` may be ready: those prefetched, and one in the hands of each helper."""
    return (PREFETCHED_PER_HELPER + 1) * helpers


def _pipeline_options(helpers):
    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, helpers)  # one runs the pipeline's functions in any case
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False  # nothing is left for it to choose, and it is a thread more
    options.deterministic = True
    return options


class SyntheticBatches(object):
    """The same few batches, over and over, on the device in force."""

    threads = 0
    ahead = 0

    def __init__(self, pairs):
        own = [(tf.constant(channels_last(inputs)), tf.constant(channels_last(targets))) for inputs, targets in pairs]
        self._batches = itertools.cycle(own)

    def feed(self, step):
        """Return a function without arguments that runs ``step``, which is compiled, on the next batch."""
        compiled = tf.function(step, autograph=False)
        return lambda: compiled(*next(self._batches))

    def copies(self):
        """Return ``feed``: nothing is copied."""
        return self.feed

    def taker(self):
        """Return a function that takes the next batch and returns it."""
        return lambda: next(self._batches)


class NativeBatches(object):
    """An iterator over ``(inputs, targets)`` without end.

    ``threads`` is how many threads prepare samples ahead of the training, the ``processes`` of the loader; with none,
    the step waits for its batch. ``ahead`` is how many batches may be ready before they are asked for.
    """

    def __init__(self, source, order, processes, device):
        self.threads = processes
        self.ahead = batches_ahead(processes)
        self._source = source
        self._order = order
        self._device = device
        self._served = 0
        source.as_bytes = device is not None
        batches = batches_of(source, self._epochs(), processes)
        self._iterator = iter(batches if device is None else self._prefetched(batches))
        self._take = self.taker()

    def _epochs(self):
        """Return the dataset of the source's plans, one for each epoch."""
        return tf.data.Dataset.from_generator(
            lambda: (self._source.plan(*epoch) for epoch in epochs_of(self._order())),
            output_signature=self._source.signature,
        )

    def _prefetched(self, batches):
        """Return a dataset whose next batch is copied to the device, as bytes, while the one before is trained."""
        return batches.apply(tf.data.experimental.prefetch_to_device(self._device, buffer_size=1))

    def _on_device(self, function):
        """Return ``function`` of inputs and targets, compiled, for a batch in bytes that lies on the device."""

        def of_bytes(pixels, targets):
            with tf.device(self._device):
                inputs = self._source.normalised(pixels)
            return function(inputs, targets)

        return tf.function(of_bytes, autograph=False)

    def copies(self):
        """Return what ``feed`` is, for one batch that stays in the host's memory and is copied as in training."""
        held = next(iter(batches_of(self._source, self._epochs(), 0)))
        copied = iter(self._prefetched(tf.data.Dataset.from_tensors(held).repeat()))

        def feed(step):
            compiled = self._on_device(step)
            return lambda: compiled(*next(copied))

        return feed

    def __iter__(self):
        return self

    def __next__(self):
        """Return the next batch; raises what ``feed`` raises."""
        if self._device is None:
            return self._count(lambda: next(self._iterator))
        return self._take()

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
            compiled = self._on_device(step)

            def whole():
                return compiled(*next(self._iterator))

        return lambda: self._count(whole)

    def taker(self):
        """Return a function that takes the next batch, as the function of ``feed`` does, and returns it."""
        return self.feed(lambda *batch: batch)

    def _count(self, take):
        try:
            result = take()
        except tf.errors.OpError as error:
            _, chosen = next(itertools.islice(self._order(), self._served, None))
            fault = file_at_fault(self._source, chosen, self._source.pixels)
            if fault:
                raise ValueError(fault) from error
            raise
        self._served += 1
        return result
