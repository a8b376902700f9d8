"""Batches as Chainer wants them: synthetic ones, arrays in memory, and image folders through Chainer's iterators."""

import itertools
import multiprocessing

import chainer
import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.samples import batch_indices, read_arrays, scale_and_shift, synthetic_batches

_PREFETCHED_BATCHES = 4


def start_helper_server(loader):
    """Start the process from which the loader's helper processes are forked later, if it has any.

    To be called before MPI is initialised: a process that holds MPI's connections must not be forked.
    """
    if loader.get("processes"):
        multiprocessing.set_start_method("forkserver", force=True)
        multiprocessing.set_forkserver_preload(["chainer", "PIL.Image", __name__])
        from multiprocessing import forkserver

        forkserver.ensure_running()


def open_loader(job, context, device):
    """Return the loader of a job: ``next()`` gives ``(inputs, targets)`` on ``device``, ``close()`` ends it.

    Inputs are float32 (batch,) + input shape; targets are int32 class indices, or the inputs for a
    mean-squared-error workload.

    Raises ValueError when the dataset does not hold what the job says or is too small for one batch.
    """
    loader, batch, seed = job["loader"], job["batch_per_worker"], job["seed"]
    if loader["kind"] == "synthetic":
        batches = synthetic_batches(job["workload"], batch, loader["distinct_batches"], seed, context.rank)
        return ChainerSyntheticLoader(batches, device)
    order = EpochOrder(loader["dataset"]["samples"], batch, seed, context.rank, context.workers)
    kind = {"arrays": ChainerArrayLoader, "image_folder": ChainerImageFolderLoader}[loader["dataset"]["form"]]
    return kind(job, order, device)


def batches_ahead(loader):
    """Return how many batches the job's ``loader`` may hold ready."""
    return _PREFETCHED_BATCHES if loader.get("processes") and loader["dataset"]["form"] == "image_folder" else 0


class ChainerSyntheticLoader(object):
    """Batches that lie on the device, one after the other without end."""

    def __init__(self, batches, device):
        self._batches = itertools.cycle(
            [(device.send(inputs), device.send(_targets(targets))) for inputs, targets in batches]
        )

    def next(self):
        return next(self._batches)

    def close(self):
        """Do nothing: there is nothing to release."""


class EpochOrder(chainer.iterators.OrderSampler):
    """The order of a worker's samples as one of Chainer's order samplers, called once per epoch.

    A key is ``epoch * samples + index``, so that what is drawn at random for a sample depends on its epoch and not
    on the process that loads it. An epoch has whole batches only.
    """

    def __init__(self, samples, batch, seed, rank, workers):
        self.samples = samples
        self.batch = batch
        self.batches = batch_indices(samples, batch, seed, rank, workers)
        self._batches_per_epoch = samples // workers // batch

    def __call__(self, *_):  # Chainer passes the order and the position of the past epoch
        chosen = itertools.islice(self.batches, self._batches_per_epoch)
        return numpy.concatenate([epoch * self.samples + indices for epoch, indices in chosen])


class ChainerArrayLoader(object):
    """Samples that lie in memory as bytes: a batch is one gather, one multiplication and one addition.

    That takes microseconds, so it always happens in the training process.
    """

    def __init__(self, job, order, device):
        dataset = job["loader"]["dataset"]
        self._images, labels = read_arrays(dataset)
        self._labels = labels.astype(numpy.int32)
        self._scale, self._shift = scale_and_shift(dataset["transform"], self._images.shape[1])
        self._shape = (order.batch,) + tuple(job["workload"]["input_shape"])
        self._squared = job["workload"]["loss"] == "mean_squared_error"
        self._order = order
        self._device = device

    def next(self):
        _, chosen = next(self._order.batches)
        inputs = self._images[chosen] * self._scale
        inputs += self._shift
        inputs = self._device.send(inputs.reshape(self._shape))
        return inputs, inputs if self._squared else self._device.send(self._labels[chosen])

    def close(self):
        """Do nothing: there is nothing to release."""


class ChainerImageFolderLoader(object):
    """Files decoded by Pillow, in helper processes that run ahead if the job gives any."""

    def __init__(self, job, order, device):
        loader, input_shape = job["loader"], tuple(job["workload"]["input_shape"])
        dataset = ChainerImageFiles(loader["dataset"], input_shape, job["seed"])
        self._squared = job["workload"]["loss"] == "mean_squared_error"
        self._convert = chainer.dataset.concat_examples
        self._device = device
        if device.xp is not numpy:
            self._convert = chainer.dataset.ConcatWithAsyncTransfer()
            self._device = device.device.id
        if not loader["processes"]:
            self._iterator = chainer.iterators.SerialIterator(dataset, order.batch, order_sampler=order)
        else:
            self._iterator = chainer.iterators.MultiprocessIterator(
                dataset,
                order.batch,
                n_processes=loader["processes"],
                n_prefetch=_PREFETCHED_BATCHES,
                shared_mem=dataset.sample_bytes,
                order_sampler=order,
                dataset_timeout=None,
            )

    def next(self):
        samples = self._iterator.next()
        for sample in samples:
            if isinstance(sample, BrokenFile):
                raise ValueError(sample.message)
        inputs, targets = self._convert(samples, self._device)
        return inputs, inputs if self._squared else targets

    def close(self):
        """End the helper processes."""
        self._iterator.finalize()


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
            crop = files.keyed_crop(key)
        except ValueError as error:
            return BrokenFile(str(error))
        inputs = crop.transpose(2, 0, 1) * files.scale
        inputs += files.shift
        return inputs.reshape(self._input_shape), self._labels[key % len(files)]


def _targets(targets):
    """Class indices as the 32-bit integers that Chainer's losses use; anything else as it is."""
    return targets.astype(numpy.int32) if targets.dtype == numpy.int64 else targets
