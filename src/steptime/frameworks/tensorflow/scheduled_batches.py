"""The batches of ParameterServerStrategy: datasets on the workers, and what a step that is scheduled takes from them.

Whichever worker is free runs the next step, so that a step does not know its worker when it is scheduled.
"""

import itertools

import numpy
import tensorflow as tf

from steptime.libraries.tensorflow.input_files import SOURCES, epochs_of, file_at_fault
from steptime.libraries.tensorflow.loader import SyntheticBatches, batches_ahead, batches_of
from steptime.worker.batches import worker_order
from steptime.worker.samples import synthetic_batches
from steptime.worker.weights import channels_last

_PLANNED_EPOCHS = 64
_PLANNED_SAMPLES = 4 * 10**6


def open_scheduled_batches(job, workers, scheduler):
    """Return the ``ScheduledSynthetic`` or ``ScheduledFiles`` of a job.

    Args:
        job: the job.
        workers: how many there are.
        scheduler: TensorFlow's ``ClusterCoordinator``.

    Raises ValueError when the dataset does not hold what the job asks for.
    """
    kind = ScheduledSynthetic if job["loader"]["kind"] == "synthetic" else ScheduledFiles
    return kind(job, workers, scheduler)


class ScheduledSynthetic(object):
    """The batches of all workers on every worker: a step that worker 1 asked for has its batch wherever it runs.

    ``threads``
        How many threads of a worker prepare samples.
    ``ahead``
        How many batches may be ready before they are asked for.
    """

    threads = 0
    ahead = 0

    def __init__(self, job, workers, scheduler):
        self._pairs = [synthetic_batches(job, rank) for rank in range(workers)]
        every = [pair for pairs in self._pairs for pair in pairs]
        stacks = tuple(tf.constant(numpy.stack([channels_last(array) for array in part])) for part in zip(*every))
        dataset = scheduler.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(stacks).repeat())
        self._iterator = iter(dataset)
        numbers = iter(range(len(every)))
        own = [[tf.constant(next(numbers)) for _ in pairs] for pairs in self._pairs]
        self._places = [itertools.cycle(places) for places in own]

    def feed(self, step):
        """Return the compiled function of what ``arguments`` returns, and more, that runs ``step`` on one batch.

        ``step`` gets the arguments that are more behind the batch.
        """

        def of_place(iterator, place, *more):
            inputs, targets = next(iterator)
            return step(inputs[place], targets[place], *more)

        return tf.function(of_place, autograph=False)

    def arguments(self, rank):
        """Return what the next step that a worker asked for takes."""
        return self._iterator, next(self._places[rank])

    def taker(self, rank):
        """Return a function that takes the next batch of a worker, whose device is in force."""
        return SyntheticBatches(self._pairs[rank]).taker()

    def fault(self):
        """Nothing can be wrong with these."""


class ScheduledFiles(object):
    """Each worker's own pipeline over its share of a dataset on disk; a step takes the next batch where it runs.

    A pipeline of another process cannot ask this one's Python for its epochs. So many epochs are planned ahead as have
    four million samples together, at least one and at most 64, and follow each other without end.
    """

    def __init__(self, job, workers, scheduler):
        loader = job["loader"]
        self.threads = loader["processes"]
        self.ahead = batches_ahead(self.threads)
        shape = tuple(job["workload"]["input_shape"])
        self._source = SOURCES[loader["dataset"]["form"]](
            loader["dataset"], shape, job["batch_per_worker"], job["seed"]
        )
        self._orders = [_planned(worker_order(job, rank, workers)) for rank in range(workers)]
        plans = [[self._source.plan(*epoch) for epoch in epochs_of(order)] for order in self._orders]
        whole = [tuple(map(numpy.stack, zip(*own))) if isinstance(own[0], tuple) else numpy.stack(own) for own in plans]
        self._plans = tf.nest.map_structure(lambda *parts: tf.constant(numpy.stack(parts)), *whole)
        index = tf.distribute.coordinator.experimental_get_current_worker_index
        self._iterator = iter(scheduler.create_per_worker_dataset(lambda: self._dataset(index())))

    def _dataset(self, rank):
        own = tf.nest.map_structure(lambda plans: plans[rank], self._plans)
        epochs = tf.data.Dataset.from_tensor_slices(own).repeat()
        return batches_of(self._source, epochs, self.threads)

    def feed(self, step):
        """Return the compiled function of what ``arguments`` returns, and more, that runs ``step`` on one batch.

        ``step`` gets the arguments that are more behind the batch.
        """
        return tf.function(lambda iterator, *more: step(*(tuple(next(iterator)) + more)), autograph=False)

    def arguments(self, _):
        """Return what the next step takes, whoever asked for it."""
        return (self._iterator,)

    def taker(self, rank):
        """Return a function that takes the next batch of a worker, whose device is in force."""
        iterator = iter(self._dataset(rank))
        return tf.function(lambda: next(iterator), autograph=False)

    def fault(self):
        """Return which file of the dataset cannot be decoded, and why; None if all can."""
        for order in self._orders:
            for _, chosen in order:
                found = file_at_fault(self._source, chosen, self._source.pixels)
                if found:
                    return found
        return None


def _planned(order):
    """Return the batches of as many epochs as are planned ahead, as ``(epoch, indices)``.

    Raises ValueError when a batch is larger than the worker's share of the dataset.
    """
    first = next(order)
    epoch = [first]
    following = None
    for following in order:
        if following[0] != first[0]:
            break
        epoch.append(following)
    count = max(1, min(_PLANNED_EPOCHS, _PLANNED_SAMPLES // (len(epoch) * len(first[1]))))
    rest = itertools.islice(order, max(0, (count - 1) * len(epoch) - 1))
    return epoch if count == 1 else epoch + [following] + list(rest)
