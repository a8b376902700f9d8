"""Batches as Chainer wants them: synthetic ones, arrays in memory, and image folders through Chainer's iterators."""

import itertools
import multiprocessing

import chainer
import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, open_batches
from steptime.worker.samples import PREFETCHED_PER_HELPER


def start_helper_server(loader):
    """Start the process from which the loader's helper processes are forked later, if it has any.

    To be called before MPI is initialised: a process that holds MPI's connections must not be forked.
    """
    if loader.get("processes"):
        multiprocessing.set_start_method("forkserver", force=True)
        multiprocessing.set_forkserver_preload(["chainer", "PIL.Image", __name__])
        from multiprocessing import forkserver

        forkserver.ensure_running()


def open_chainer_batches(job, context, device):
    """Return the ``Batches`` of a job, ``(inputs, targets)`` on ``device``.

    Inputs are float32 (batch,) + input shape; targets are int32 class indices, as Chainer's losses want them, or the
    inputs for a mean-squared-error workload.

    Raises ValueError when the dataset does not hold what the job says or is too small for one batch.
    """

    def put(inputs, targets):
        sent = device.send(inputs)
        if targets is inputs:
            return sent, sent
        return sent, device.send(targets.astype(numpy.int32) if targets.dtype == numpy.int64 else targets)

    def open_folder(order):
        return _folder_batches(job, EpochOrder(job, order, context.workers), device)

    return open_batches(job, context.rank, context.workers, put, open_folder)


class EpochOrder(chainer.iterators.OrderSampler):
    """The order of a worker's samples as one of Chainer's order samplers, called once per epoch.

    A key is ``epoch * samples + index``, so that what is drawn at random for a sample depends on its epoch and not
    on the process that loads it. An epoch has whole batches only.
    """

    def __init__(self, job, order, workers):
        self._samples = job["loader"]["dataset"]["samples"]
        self._order = order
        self._batches_per_epoch = self._samples // workers // job["batch_per_worker"]

    def __call__(self, *_):  # Chainer passes the order and the position of the past epoch
        chosen = itertools.islice(self._order, self._batches_per_epoch)
        return numpy.concatenate([epoch * self._samples + indices for epoch, indices in chosen])


def _folder_batches(job, order, device):
    """Return the ``Batches`` of files decoded by Pillow, in helper processes that run ahead if the job gives any."""
    helpers = job["loader"]["processes"]
    files = ChainerImageFiles(job["loader"]["dataset"], tuple(job["workload"]["input_shape"]), job["seed"])
    convert, target = chainer.dataset.concat_examples, device
    if device.xp is not numpy:
        convert, target = chainer.dataset.ConcatWithAsyncTransfer(), device.device.id
    if not helpers:
        iterator = chainer.iterators.SerialIterator(files, job["batch_per_worker"], order_sampler=order)
    else:
        iterator = chainer.iterators.MultiprocessIterator(
            files,
            job["batch_per_worker"],
            n_processes=helpers,
            n_prefetch=PREFETCHED_PER_HELPER * helpers,
            shared_mem=files.sample_bytes,
            order_sampler=order,
            dataset_timeout=None,
        )
    squared = job["workload"]["loss"] == "mean_squared_error"

    def batch(samples):
        for sample in samples:
            if isinstance(sample, BrokenFile):
                raise ValueError(sample.message)
        inputs, targets = convert(samples, target)
        return inputs, inputs if squared else targets

    return Batches(map(batch, iterator), PREFETCHED_PER_HELPER * helpers, iterator.finalize)


class BrokenFile(object):
    """Stands in for a sample that cannot be decoded.

    An exception in a helper process would end the iterator's thread and leave the training waiting for ever; this
    travels to the training process, which raises it there.
    """

    def __init__(self, message):
        self.message = message


class ChainerImageFiles(chainer.dataset.DatasetMixin):
    """The files of an ``image_folder`` as samples ``(float32 image, int32 label)``, for keys of ``EpochOrder``."""

    def __init__(self, dataset, input_shape, seed):
        self._files = PhotographFiles(dataset, input_shape, seed)
        self._labels = self._files.labels.astype(numpy.int32)
        self._input_shape = input_shape
        self.sample_bytes = 4 * int(numpy.prod(input_shape))

    def __len__(self):
        return len(self._files)

    def get_example(self, key):
        files, key = self._files, int(key)
        try:
            epoch, index = divmod(key, len(files))
            (crop,) = files.batch_crops(epoch, [index])
        except ValueError as error:
            return BrokenFile(str(error))
        return files.normalised(crop).reshape(self._input_shape), self._labels[key % len(files)]
