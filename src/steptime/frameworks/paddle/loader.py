"""Batches as tensors of Paddle: synthetic ones, arrays in memory, and folders of images by its DataLoader."""

import numpy
import paddle
from paddle.io import DataLoader, Dataset

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, open_batches
from steptime.worker.samples import PREFETCHED_PER_HELPER
from steptime.worker.tether import die_with_parent


def open_paddle_batches(job, context):
    """Return the ``Batches`` of a job, ``(inputs, targets)``.

    Inputs are float32 (batch,) + input shape; targets are int64 class indices, or the inputs for a mean-squared-error
    workload.

    Raises ValueError when the dataset does not hold what the job asks for or is too small for one batch.
    """

    def put(inputs, targets):
        sent = paddle.to_tensor(inputs)
        return sent, sent if targets is inputs else paddle.to_tensor(targets)

    def open_folder(order):
        return _folder_batches(job, order)

    return open_batches(job, context.rank, context.workers, put, open_folder)


class FolderOfBatches(Dataset):
    """The files of a folder; an item is the whole batch of an entry ``(epoch, indices)``.

    An item is ``[images, labels, what is wrong]``, arrays of float32, int64 and uint8. The last holds the message about
    a file that cannot be decoded, and one zero otherwise: an error in a helper would end Paddle's reading thread, and
    training would not be told which file it was.
    """

    def __init__(self, job):
        self._files = PhotographFiles(job["loader"]["dataset"], job["workload"]["input_shape"], job["seed"])
        self._shape = tuple(job["workload"]["input_shape"])

    def __len__(self):
        return len(self._files)

    def __getitem__(self, entry):
        epoch, indices = entry
        images = numpy.empty((len(indices), self._files.channels) + self._files.size, dtype=numpy.float32)
        wrong = b"\0"
        try:
            for crop, image in zip(self._files.batch_crops(epoch, indices), images):
                self._files.normalised(crop, out=image)
        except ValueError as error:
            wrong = str(error).encode()
        labels = self._files.labels[indices]
        return [images.reshape((-1,) + self._shape), labels, numpy.frombuffer(wrong, dtype=numpy.uint8).copy()]


class _OrderSampler(object):
    """An endless order of batches as Paddle's batch sampler: each batch is one item."""

    def __init__(self, order):
        self._order = order

    def __iter__(self):
        return ([entry] for entry in self._order)


def _only(items):
    """Collate a batch of one item, which is a batch itself."""
    (item,) = items
    return item


def _folder_batches(job, order):
    helpers = job["loader"]["processes"]
    loader = DataLoader(
        FolderOfBatches(job),
        batch_sampler=_OrderSampler(order),
        collate_fn=_only,
        num_workers=helpers,
        prefetch_factor=PREFETCHED_PER_HELPER,
        use_buffer_reader=helpers > 0,
        worker_init_fn=lambda _: die_with_parent(),  # Paddle's own watch waits for its queue and never looks
    )
    squared = job["workload"]["loss"] == "mean_squared_error"
    source = iter(loader)

    def batches():
        for images, labels, wrong in source:
            if wrong.shape[0] > 1:
                raise ValueError(wrong.numpy().tobytes().decode())
            yield images, images if squared else labels

    def close():
        if helpers:
            source._try_shutdown_all(1)  # noqa: SLF001 - Paddle ends its helpers by the collection of garbage only

    return Batches(batches(), PREFETCHED_PER_HELPER * helpers, close)
