"""Synthetic batches that every framework and every worker can compute for itself."""

import numpy


def synthetic_batches(workload, batch, count, seed, rank):
    """Return ``count`` pairs ``(inputs, targets)`` of numpy arrays for the worker ``rank``.

    ``inputs`` is float32 of shape ``(batch,) + input shape`` (channels first), standard normal; ``targets`` is
    int64 of shape ``(batch,)`` with class indices, or the inputs in the shape of the output for a mean-squared-error
    workload.

    Args:
        workload: a workload's JSON.
        batch: samples per batch.
        count: how many distinct batches.
        seed: of the job; ``rank`` makes each worker's samples its own.
        rank: the worker's rank.
    """
    batches = []
    for index in range(count):
        stream = numpy.random.RandomState([seed, 7919, rank, index])
        shape = (batch,) + tuple(workload["input_shape"])
        inputs = stream.standard_normal(shape).astype(numpy.float32)
        if workload["loss"] == "mean_squared_error":
            targets = inputs.reshape((batch,) + tuple(workload["layers"][-1]["output_shape"]))
        else:
            targets = stream.randint(0, workload["classes"], size=batch).astype(numpy.int64)
        batches.append((inputs, targets))
    return batches
