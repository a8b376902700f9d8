"""Layers without space: the matrix product and what leads to it."""

import numpy

from steptime.worker.builders.reference_layers.base import Layer


class Linear(Layer):
    """weight @ features + bias; weight (out, in)."""

    def forward(self, features):
        self.saved = features
        output = numpy.matmul(self.weights["weight"], features)
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1)
        return output

    def backward(self, gradient):
        features, self.saved = self.saved, None
        numpy.matmul(gradient, features.T, out=self.gradients["weight"])
        if "bias" in self.gradients:
            gradient.sum(axis=1, out=self.gradients["bias"])
        if not self.wants_input_gradient:
            return [None]
        return [numpy.matmul(self.weights["weight"].T, gradient)]


class Flatten(Layer):
    """Channels, height and width become features, in this order."""

    def forward(self, images):
        channels, batch = images.shape[:2]
        spatial = images.reshape(channels, batch, -1).transpose(0, 2, 1)
        self.saved = images.shape
        return numpy.ascontiguousarray(spatial).reshape(-1, batch)

    def backward(self, gradient):
        channels, batch = self.saved[:2]
        spatial = gradient.reshape(channels, -1, batch).transpose(0, 2, 1)
        return [numpy.ascontiguousarray(spatial).reshape(self.saved)]
