"""Convolution as a matrix product over spread windows (Chellapilla et al. 2006)."""

import numpy

from steptime.worker.builders.reference_layers.base import Layer
from steptime.worker.builders.reference_layers.sliding import Sliding

# Windows are spread for so many bytes at once: large enough for the matrix product, small enough for the memory of a
# laptop (a whole batch of VGG-16 would take a gigabyte). For the same reason they are spread again when going back.
_SPREAD_BYTES = 32 * 2**20


class Conv2d(Layer):
    """Cross-correlation with zero padding; weight (out, in / groups, height, width)."""

    def __init__(self, *arguments):
        super(Conv2d, self).__init__(*arguments)
        self._sliding = Sliding(self.attributes, self.output_shape)

    def forward(self, images):
        self.saved = images
        out, height, width = self.output_shape
        output = numpy.empty((out, images.shape[1], height, width), dtype=images.dtype)
        for ins, outs in self._groups(images):
            padded = self._sliding.pad(images[ins], 0)
            for part in self._parts(padded):
                product = numpy.matmul(_matrix(self.weights["weight"][outs]), self._columns(padded[:, part]))
                output[outs, part] = product.reshape(output[outs, part].shape)
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1, 1, 1)
        return output

    def backward(self, gradient):
        images, self.saved = self.saved, None
        self.gradients["weight"][...] = 0
        if "bias" in self.gradients:
            _matrix(gradient).sum(axis=1, out=self.gradients["bias"])
        image_gradient = numpy.zeros_like(images) if self.wants_input_gradient else None
        for ins, outs in self._groups(images):
            padded = self._sliding.pad(images[ins], 0)
            padded_gradient = numpy.zeros_like(padded) if self.wants_input_gradient else None
            for part in self._parts(padded):
                rows = _matrix(gradient[outs, part])
                weight_gradient = numpy.matmul(rows, self._columns(padded[:, part]).T)
                self.gradients["weight"][outs] += weight_gradient.reshape(self.gradients["weight"][outs].shape)
                if self.wants_input_gradient:
                    columns = numpy.matmul(_matrix(self.weights["weight"][outs]).T, rows)
                    self._sliding.gather(columns, padded_gradient[:, part])
            if self.wants_input_gradient:
                self._sliding.unpad(padded_gradient, image_gradient[ins])
        return [image_gradient]

    def _groups(self, images):
        """Yield the slices of input and output channels that belong together."""
        groups = self.attributes["groups"]
        ins, outs = images.shape[0] // groups, self.output_shape[0] // groups
        for group in range(groups):
            yield slice(group * ins, (group + 1) * ins), slice(group * outs, (group + 1) * outs)

    def _parts(self, padded):
        """Yield slices of the batch whose spread windows stay within the limit."""
        channels, batch = padded.shape[:2]
        _, height, width = self.output_shape
        rows, columns = self.attributes["kernel"]
        one = channels * rows * columns * height * width * padded.dtype.itemsize
        at_once = max(1, _SPREAD_BYTES // one)
        for start in range(0, batch, at_once):
            yield slice(start, start + at_once)

    def _columns(self, padded):
        """Return the matrix ``(channels x window, batch x height x width)`` of all windows."""
        if self._sliding.trivial:
            return _matrix(padded)
        rows, columns = self.attributes["kernel"]
        return self._sliding.spread(padded).reshape(padded.shape[0] * rows * columns, -1)


def _matrix(array):
    """Return ``array`` with all axes but the first as one."""
    return array.reshape(array.shape[0], -1)
