"""Batches as CNTK's values: synthetic ones, arrays in memory, and image folders decoded by threads.

CNTK's own readers draw crops and orders that are not the protocol's and skip files that they cannot decode. Training
holds no lock of Python's while it computes, and decoding none while it decodes, so that threads are enough.
"""

import collections
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cntk
import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, open_batches
from steptime.worker.samples import PREFETCHED_PER_HELPER


def open_cntk_batches(job, context):
    """Return the ``Batches`` of a job, ``(inputs, targets)``.

    Both are CNTK's values: float32 (batch,) + input shape, and the share of each class, (batch, classes), which is None
    for a mean-squared-error workload.

    Raises ValueError when the dataset does not hold what the job asks for or is too small for one batch.
    """
    workload, smoothing = job["workload"], job["label_smoothing"]
    class_targets = None
    if workload["loss"] != "mean_squared_error":
        one_hot = numpy.eye(workload["classes"], dtype=numpy.float32)
        class_targets = one_hot * (1.0 - smoothing) + numpy.float32(smoothing / workload["classes"])

    def put(inputs, targets):
        return cntk.Value(batch=inputs), None if class_targets is None else cntk.Value(batch=class_targets[targets])

    def open_folder(order):
        reader = CntkFolderReader(job, order)
        ahead = PREFETCHED_PER_HELPER * job["loader"]["processes"]
        return Batches((put(*pair) for pair in reader.pairs()), ahead, reader.close)

    return open_batches(job, context.rank, context.workers, put, open_folder)


class CntkFolderReader(object):
    """Files decoded by Pillow, some batches ahead in threads if the job gives any."""

    def __init__(self, job, order):
        dataset, input_shape = job["loader"]["dataset"], tuple(job["workload"]["input_shape"])
        self._files = PhotographFiles(dataset, input_shape, job["seed"])
        self._shape = (job["batch_per_worker"],) + input_shape
        self._order = order
        self._ahead: "collections.deque[Any]" = collections.deque()
        self._pool = None
        if job["loader"]["processes"]:
            self._pool = ThreadPoolExecutor(job["loader"]["processes"])
            for _ in range(PREFETCHED_PER_HELPER * job["loader"]["processes"]):
                self._begin()

    def pairs(self):
        """Yield inputs, float32 (batch,) + input shape, and labels of one batch after the other."""
        while True:
            if self._pool is None:
                self._begin()
            inputs, chosen, running = self._ahead.popleft()
            if self._pool is not None:
                self._begin()
            for each in running:
                each.result()  # raises what its thread did
            yield inputs, self._files.labels[chosen]

    def _begin(self):
        """Read the next batch, or have it read by the threads."""
        epoch, chosen = next(self._order)
        inputs = numpy.empty(self._shape, dtype=numpy.float32)
        calls = list(zip(chosen, *self._files.boxes(epoch, chosen), inputs))
        if self._pool is None:
            running = []
            for call in calls:
                self._read(*call)
        else:
            running = [self._pool.submit(self._read, *call) for call in calls]
        self._ahead.append((inputs, chosen, running))

    def _read(self, index, box, flipped, out):
        """Put a normalised sample into ``out``, an array of the input's shape."""
        files = self._files
        files.normalised(files.crop(index, box, flipped), out.reshape((files.channels,) + files.size))

    def close(self):
        """End the threads once they have read the file at which they are."""
        for _, _, running in self._ahead:
            for each in running:
                each.cancel()
        if self._pool is not None:
            self._pool.shutdown()
