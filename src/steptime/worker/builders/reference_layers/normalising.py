"""Layers that scale values by what their neighbours are."""

import numpy

from steptime.worker.builders.reference_layers.base import Layer


class BatchNorm(Layer):
    """Normalises each channel over batch and space by the batch's mean and biased variance (Ioffe, Szegedy 2015).

    Statistics are summed in 64 bits. There are no running statistics: nothing here computes without training.
    """

    def forward(self, values):
        rows = values.reshape(values.shape[0], -1)
        mean = rows.mean(axis=1, dtype=numpy.float64)
        normalised = rows - _column(mean, rows)
        variance = numpy.square(normalised).mean(axis=1, dtype=numpy.float64)
        inverse = 1 / numpy.sqrt(variance + self.attributes["epsilon"])
        normalised *= _column(inverse, rows)
        self.saved = normalised, inverse
        output = normalised * self.weights["weight"].reshape(-1, 1)
        output += self.weights["bias"].reshape(-1, 1)
        return output.reshape(values.shape)

    def backward(self, gradient):
        (normalised, inverse), self.saved = self.saved, None
        rows = gradient.reshape(gradient.shape[0], -1)
        shift = rows.sum(axis=1, dtype=numpy.float64)
        scale = (rows * normalised).sum(axis=1, dtype=numpy.float64)
        self.gradients["bias"][...] = shift
        self.gradients["weight"][...] = scale
        if not self.wants_input_gradient:
            return [None]
        count = rows.shape[1]
        result = rows - normalised * _column(scale / count, rows)
        result -= _column(shift / count, rows)
        result *= _column(self.weights["weight"] * inverse, rows)
        return [result.reshape(gradient.shape)]


class LocalResponseNorm(Layer):
    """x / (k + alpha / size * sum of squares over ``size`` neighbouring channels) ** beta (Krizhevsky et al. 2012)."""

    def forward(self, values):
        attributes = self.attributes
        sums = self._neighbours(values * values)
        sums *= attributes["alpha"] / attributes["size"]
        sums += attributes["k"]
        factor = sums ** -attributes["beta"]
        self.saved = values, sums, factor
        return values * factor

    def backward(self, gradient):
        (values, sums, factor), self.saved = self.saved, None
        attributes = self.attributes
        result = gradient * factor
        spread = self._neighbours(result * values / sums)
        spread *= 2 * attributes["alpha"] * attributes["beta"] / attributes["size"]
        result -= values * spread
        return [result]

    def _neighbours(self, values):
        """Sum over each channel and the ``size // 2`` channels on either side of it."""
        sums = values.copy()
        for distance in range(1, self.attributes["size"] // 2 + 1):
            sums[distance:] += values[:-distance]
            sums[:-distance] += values[distance:]
        return sums


def _column(statistic, rows):
    return statistic.astype(rows.dtype).reshape(-1, 1)
