"""Layers that treat every value alone."""

import numpy

from steptime.worker.builders.reference_layers.base import Layer


class Relu(Layer):
    """max(0, x), with the derivative 0 at 0."""

    def forward(self, values):
        self.saved = numpy.maximum(values, 0)
        return self.saved

    def backward(self, gradient):
        output, self.saved = self.saved, None
        return [gradient * (output > 0)]


class Tanh(Layer):
    """Hyperbolic tangent."""

    def forward(self, values):
        self.saved = numpy.tanh(values)
        return self.saved

    def backward(self, gradient):
        output, self.saved = self.saved, None
        return [gradient * (1 - output * output)]


class Sigmoid(Layer):
    """1 / (1 + exp(-x)), computed as (1 + tanh(x / 2)) / 2, which cannot overflow."""

    def forward(self, values):
        self.saved = 0.5 * (1 + numpy.tanh(0.5 * values))
        return self.saved

    def backward(self, gradient):
        output, self.saved = self.saved, None
        return [gradient * (output * (1 - output))]


class Dropout(Layer):
    """Zeroes a share ``rate`` of the values and divides the rest by ``1 - rate``."""

    stream = numpy.random.RandomState(0)
    """Of the masks; whoever owns the layer gives it one of its own."""

    def forward(self, values):
        rate = self.attributes["rate"]
        if rate == 0:
            self.saved = None
            return values
        kept = self.stream.random_sample(values.shape) >= rate
        self.saved = kept.astype(values.dtype) / values.dtype.type(1 - rate)
        return values * self.saved

    def backward(self, gradient):
        mask, self.saved = self.saved, None
        return [gradient if mask is None else gradient * mask]
