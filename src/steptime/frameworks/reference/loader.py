"""Batches of the reference, one after the other in the training process: image files are read by Pillow."""

import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, open_batches


def open_reference_batches(job, rank, workers, put):
    """Return the ``Batches`` of a worker; ``put`` is that of ``open_batches``.

    Raises ValueError when the dataset does not hold what the job asks for, or holds a file that cannot be decoded.
    """
    squared = job["workload"]["loss"] == "mean_squared_error"

    def open_folder(order):
        files = PhotographFiles(job["loader"]["dataset"], job["workload"]["input_shape"], job["seed"])

        def batch(epoch, chosen):
            inputs = numpy.stack([files.normalised(crop) for crop in files.batch_crops(epoch, chosen)])
            return put(inputs, inputs if squared else files.labels[chosen])

        return Batches(batch(*entry) for entry in order)

    return open_batches(job, rank, workers, put, open_folder)
