"""What is minimised, with its gradient; summed in 64 bits."""

import numpy


def softmax_cross_entropy(output, targets):
    """Return the mean over the batch of -log softmax(output)[target], and its gradient by ``output``.

    Args:
        output: (classes, batch), of any float type.
        targets: (batch,) class indices.
    """
    batch = output.shape[1]
    scores = output.astype(numpy.float64)
    scores -= scores.max(axis=0)
    exponentials = numpy.exp(scores)
    totals = exponentials.sum(axis=0)
    samples = numpy.arange(batch)
    loss = (numpy.log(totals) - scores[targets, samples]).mean()
    gradient = exponentials / totals
    gradient[targets, samples] -= 1
    return float(loss), (gradient / batch).astype(output.dtype)


def mean_squared_error(output, targets):
    """Return the mean of (output - targets)^2 over all elements, and its gradient by ``output``; shapes are equal."""
    distance = output - targets
    loss = numpy.square(distance).mean(dtype=numpy.float64)
    return float(loss), distance * distance.dtype.type(2.0 / distance.size)


LOSSES = {"softmax_cross_entropy": softmax_cross_entropy, "mean_squared_error": mean_squared_error}
