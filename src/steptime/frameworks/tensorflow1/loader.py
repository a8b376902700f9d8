"""Batches as tensors of a TensorFlow 1 graph: from ``tf.data`` over a dataset on disk, or synthetic ones.

A source of batches has ``tensors``, which a step is built on, ``threads``, how many prepare samples, and ``ahead``, how
many batches may be ready before they are asked for. ``start`` is called once the session is there, and ``explain`` with
what a step raised.
"""

import itertools
from typing import Any

import numpy
import tensorflow

from steptime.libraries.tensorflow.input_files import SOURCES, epochs_of, file_at_fault
from steptime.worker.batches import worker_order
from steptime.worker.samples import PREFETCHED_PER_HELPER, synthetic_batches
from steptime.worker.weights import channels_last

tf1 = tensorflow.compat.v1


class GraphSyntheticBatches(object):
    """The same few batches, over and over, in variables of this worker: a constant's layers could be computed once."""

    threads = 0
    ahead = 0

    def __init__(self, job, rank):
        pairs = synthetic_batches(job, rank)
        self._fed: Any = {}
        counter = tf1.Variable(-1, trainable=False, collections=[], use_resource=True)
        self._starters = [counter.initializer]
        self._counter = counter
        self._kept = []
        for arrays in zip(*pairs):
            stack = numpy.stack([channels_last(array) for array in arrays])
            fed = tf1.placeholder(stack.dtype, stack.shape)
            variable = tf1.Variable(fed, trainable=False, collections=[], use_resource=True)
            self._fed[fed] = stack
            self._starters.append(variable.initializer)
            self._kept.append(variable)
        self.tensors = self.take()

    def take(self):
        """Return tensors of the next batch; each call adds operations to the graph that take one."""
        index = tf1.mod(self._counter.assign_add(1), self._kept[0].shape[0].value)
        # A slice along the first axis is not copied.
        return tuple(variable.read_value()[index] for variable in self._kept)

    def start(self, session):
        """Put the batches where they stay."""
        session.run(self._starters, self._fed)
        self._fed = None

    def explain(self, error, steps):
        """Nothing can be wrong with these."""


class GraphNativeBatches(object):
    """Batches of a dataset on disk without end, prefetched by as many threads as the loader has helpers."""

    def __init__(self, job, context):
        """Build the pipeline; ``job["loader"]`` is of the kind ``native`` or ``tfrecord``.

        Raises ValueError when the dataset does not hold what the job asks for.
        """
        dataset = job["loader"]["dataset"]
        self.threads = job["loader"]["processes"]
        self.ahead = (PREFETCHED_PER_HELPER + 1) * self.threads
        self._order = lambda: worker_order(job, context.rank, context.workers)
        self._order()  # raises here, and not from a thread of the pipeline, when a batch is too large
        self._fed: Any = {}
        shape = tuple(job["workload"]["input_shape"])
        self._source = SOURCES[dataset["form"]](
            dataset, shape, job["batch_per_worker"], job["seed"], constant=self._feed
        )
        many = isinstance(self._source.signature, tuple)
        parts = self._source.signature if many else (self._source.signature,)
        types, shapes = tuple(part.dtype for part in parts), tuple(part.shape for part in parts)
        epochs = tf1.data.Dataset.from_generator(
            lambda: (self._source.plan(*epoch) for epoch in epochs_of(self._order())),
            types if many else types[0],
            shapes if many else shapes[0],
        )
        batches = self._source.batches(epochs, max(1, self.threads)).with_options(self._options())
        if self.threads:
            batches = batches.prefetch(PREFETCHED_PER_HELPER * self.threads)
        self._iterator = tf1.data.make_initializable_iterator(batches)
        self.tensors = self.take()

    def take(self):
        """Return tensors of the next batch; each call adds operations to the graph that take one."""
        return self._iterator.get_next()

    def _feed(self, value):
        """Return a tensor of an array that is fed when the pipeline starts, instead of lying in the graph."""
        if not isinstance(value, numpy.ndarray):
            return tf1.constant(value)
        fed = tf1.placeholder(value.dtype, value.shape)
        self._fed[fed] = value
        return fed

    def _options(self):
        options = tf1.data.Options()
        threading = options.threading if hasattr(options, "threading") else options.experimental_threading
        threading.private_threadpool_size = max(1, self.threads)  # one runs the pipeline's functions in any case
        threading.max_intra_op_parallelism = 1
        options.experimental_deterministic = True
        return options

    def start(self, session):
        """Begin to load."""
        session.run(self._iterator.initializer, self._fed)
        self._fed = None

    def explain(self, error, steps):
        """Raise ValueError that names the file when ``error``, after so many whole steps, is of one."""
        _, chosen = next(itertools.islice(self._order(), steps, None))
        fault = file_at_fault(self._source, chosen, self._decode)
        if fault:
            raise ValueError(fault) from error

    def _decode(self, index):
        with tf1.Graph().as_default(), tf1.Session() as session:
            session.run(self._source.pixels(index))
