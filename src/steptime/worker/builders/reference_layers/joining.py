"""Layers with several inputs."""

import numpy

from steptime.worker.builders.reference_layers.base import Layer


class Add(Layer):
    """Sum of inputs of one shape."""

    def forward(self, *inputs):
        self.saved = len(inputs)
        total = inputs[0] if len(inputs) == 1 else inputs[0] + inputs[1]
        for values in inputs[2:]:
            total += values
        return total

    def backward(self, gradient):
        return [gradient] * self.saved


class Concat(Layer):
    """Channels of all inputs, one behind the other."""

    def forward(self, *inputs):
        self.saved = [values.shape[0] for values in inputs]
        return numpy.concatenate(inputs, axis=0)

    def backward(self, gradient):
        return numpy.split(gradient, numpy.cumsum(self.saved)[:-1], axis=0)
