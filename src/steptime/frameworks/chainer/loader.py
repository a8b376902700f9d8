"""Batches as Chainer wants them: synthetic ones, arrays in memory, and image folders through Chainer's iterators."""

import itertools
import multiprocessing

import chainer
import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, open_batches, sends_bytes
from steptime.worker.samples import PREFETCHED_PER_HELPER, steps_per_epoch


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
    inputs for a mean-squared-error workload. To a GPU images go as bytes from pinned memory, on a stream of their own.

    Raises ValueError when the dataset does not hold what the job asks for or is too small for one batch.
    """

    def put(inputs, targets):
        sent = device.send(inputs.astype(numpy.int32) if inputs.dtype == numpy.int64 else inputs)
        if targets is inputs:
            return sent, sent
        return sent, device.send(targets.astype(numpy.int32) if targets.dtype == numpy.int64 else targets)

    def open_folder(order):
        return _folder_batches(job, EpochOrder(job, order, context.workers), device)

    def finisher(scale, shift, shape):
        convert, scale, shift = _converter(device), device.send(scale), device.send(shift)
        squared = job["workload"]["loss"] == "mean_squared_error"

        def send(pixels, labels):
            pixels, labels = convert(list(zip(pixels, labels.astype(numpy.int32))))
            inputs = (pixels * scale + shift).reshape(shape)
            return inputs, inputs if squared else labels

        return send

    return open_batches(job, context.rank, context.workers, put, open_folder, finisher=finisher)


def _converter(device):
    """Return what makes arrays on a device of samples; to a GPU it copies on a stream of its own.

    Unless it knows the stream that computes, it waits for the whole device at every array of every batch.
    """
    if device.xp is numpy:
        return lambda samples: chainer.dataset.concat_examples(samples, device)
    transfer = chainer.dataset.ConcatWithAsyncTransfer(compute_stream=chainer.backends.cuda.Stream.null)
    return lambda samples: transfer(samples, device.device.id)


class EpochOrder(chainer.iterators.OrderSampler):
    """The order of a worker's samples as one of Chainer's order samplers, called once per epoch.

    A key is ``epoch * samples + index``, so that what is drawn at random for a sample depends on its epoch and not
    on the process that loads it. An epoch has whole batches only.
    """

    def __init__(self, job, order, workers):
        self._samples = job["loader"]["dataset"]["samples"]
        self._order = order
        self._batches_per_epoch = steps_per_epoch(self._samples, workers, job["batch_per_worker"])

    def __call__(self, *_):  # Chainer passes the order and the position of the past epoch
        chosen = itertools.islice(self._order, self._batches_per_epoch)
        return numpy.concatenate([epoch * self._samples + indices for epoch, indices in chosen])


def _folder_batches(job, order, device):
    """Return the ``Batches`` of files decoded by Pillow, in helper processes that run ahead if the job gives any."""
    helpers = job["loader"]["processes"]
    shape = tuple(job["workload"]["input_shape"])
    files = ChainerImageFiles(job["loader"]["dataset"], shape, job["seed"], as_bytes=sends_bytes(job))
    convert = _converter(device)
    scale, shift = (device.send(each) for each in files.scale_and_shift)
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
        inputs, targets = convert(samples)
        if sends_bytes(job):
            inputs = (inputs * scale + shift).reshape((-1,) + shape)
        return inputs, inputs if squared else targets

    return Batches(iterator, PREFETCHED_PER_HELPER * helpers, iterator.finalize, lambda samples: map(batch, samples))


class BrokenFile(object):
    """Stands in for a sample that cannot be decoded.

    An exception in a helper process would end the iterator's thread and leave the training waiting for ever; this
    travels to the training process, which raises it there.
    """

    def __init__(self, message):
        self.message = message


class ChainerImageFiles(chainer.dataset.DatasetMixin):
    """The files of an ``image_folder`` as samples ``(image, int32 label)``, for keys of ``EpochOrder``.

    Images are float32 and normalised, or with ``as_bytes`` neither.
    """

    def __init__(self, dataset, input_shape, seed, *, as_bytes):
        self._files = PhotographFiles(dataset, input_shape, seed)
        self._labels = self._files.labels.astype(numpy.int32)
        self._input_shape = input_shape
        self._as_bytes = as_bytes
        self.scale_and_shift = self._files.scale, self._files.shift
        self.sample_bytes = (1 if as_bytes else 4) * int(numpy.prod(input_shape))

    def __len__(self):
        return len(self._files)

    def get_example(self, key):
        files, key = self._files, int(key)
        try:
            epoch, index = divmod(key, len(files))
            (crop,) = files.batch_crops(epoch, [index])
        except ValueError as error:
            return BrokenFile(str(error))
        if self._as_bytes:
            image = numpy.ascontiguousarray(crop.transpose(2, 0, 1))
        else:
            image = files.normalised(crop).reshape(self._input_shape)
        return image, self._labels[key % len(files)]
