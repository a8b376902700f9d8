"""Layers that make one value of a window."""

import numpy

from steptime.worker.builders.reference_layers.base import Layer
from steptime.worker.builders.reference_layers.sliding import Sliding


class MaxPool(Layer):
    """Largest value of each window; of equal ones the first in reading order gets the gradient."""

    def __init__(self, *arguments):
        super(MaxPool, self).__init__(*arguments)
        self._sliding = Sliding(self.attributes, self.output_shape)

    def forward(self, images):
        padded = self._sliding.pad(images, -numpy.inf)
        taps = self._sliding.taps(padded)
        largest = next(taps).copy()
        winner = numpy.zeros(largest.shape, dtype=numpy.uint16)
        for index, view in enumerate(taps, 1):
            winner[view > largest] = index
            numpy.maximum(largest, view, out=largest)
        self.saved = winner, images.shape, padded.shape
        return largest

    def backward(self, gradient):
        (winner, shape, padded_shape), self.saved = self.saved, None
        padded = numpy.zeros(padded_shape, dtype=gradient.dtype)
        for index, view in enumerate(self._sliding.taps(padded)):
            numpy.add(view, gradient * (winner == index), out=view)
        result = numpy.zeros(shape, dtype=gradient.dtype)
        self._sliding.unpad(padded, result)
        return [result]


class AvgPool(Layer):
    """Average of each window, in which padding counts as zeros."""

    def __init__(self, *arguments):
        super(AvgPool, self).__init__(*arguments)
        self._sliding = Sliding(self.attributes, self.output_shape)
        self._share = 1.0 / (self.attributes["kernel"][0] * self.attributes["kernel"][1])

    def forward(self, images):
        padded = self._sliding.pad(images, 0)
        self.saved = images.shape, padded.shape
        total = numpy.zeros(images.shape[:2] + self.output_shape[1:], dtype=images.dtype)
        for view in self._sliding.taps(padded):
            total += view
        total *= self._share
        return total

    def backward(self, gradient):
        shape, padded_shape = self.saved
        padded = numpy.zeros(padded_shape, dtype=gradient.dtype)
        part = gradient * gradient.dtype.type(self._share)
        for view in self._sliding.taps(padded):
            numpy.add(view, part, out=view)
        result = numpy.zeros(shape, dtype=gradient.dtype)
        self._sliding.unpad(padded, result)
        return [result]


class GlobalAvgPool(Layer):
    """Average over height and width, which become 1."""

    def forward(self, images):
        self.saved = images.shape
        return images.mean(axis=(2, 3), keepdims=True)

    def backward(self, gradient):
        height, width = self.saved[2:]
        return [numpy.broadcast_to(gradient / gradient.dtype.type(height * width), self.saved)]
