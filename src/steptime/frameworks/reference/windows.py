"""Convolution and pooling in plain numpy: layers with a window that slides over images.

A window is one strided slice per position within it: ``taps`` goes over these positions, not over the windows, so that
the loops of Python are as short as the window is small. Convolution is a matrix product over unfolded windows
(Chellapilla et al. 2006).
"""

from typing import Any

import numpy

from steptime.frameworks.reference.layers import ReferenceLayer


class Sliding(object):
    """The geometry of one layer's windows."""

    def __init__(self, attributes, output_shape):
        self.kernel = tuple(attributes["kernel"])
        self.stride = tuple(attributes["stride"])
        self.padding = tuple(attributes["padding"])
        self.output = tuple(output_shape[1:])
        # Far side of the last window, counted from the beginning of the padding.
        self._reach = tuple(
            (count - 1) * stride + kernel for count, stride, kernel in zip(self.output, self.stride, self.kernel)
        )

    @property
    def trivial(self):
        """Whether every window is one value and there is one for every value."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    def pad(self, images, value):
        """Return ``images`` with ``value`` around them, exactly as far as windows reach.

        In ceil mode the last windows reach beyond the padding on the right and at the bottom; elsewhere they may
        end before the image does, and what no window sees is cut off.
        """
        if self.padding == (0, 0) and all(reach <= size for reach, size in zip(self._reach, images.shape[2:])):
            return images[:, :, : self._reach[0], : self._reach[1]]
        padded = numpy.full(images.shape[:2] + self._reach, value, dtype=images.dtype)
        here, there = self._overlap(images)
        padded[here] = images[there]
        return padded

    def unpad(self, padded, images):
        """Copy what lies inside the images from ``padded`` to ``images``; what no window saw keeps its value."""
        here, there = self._overlap(images)
        images[there] = padded[here]

    def taps(self, padded):
        """Yield, row by row, what each position of the window sees, as views over all windows."""
        height, width = self.output
        for row in range(self.kernel[0]):
            rows = slice(row, row + (height - 1) * self.stride[0] + 1, self.stride[0])
            for column in range(self.kernel[1]):
                columns = slice(column, column + (width - 1) * self.stride[1] + 1, self.stride[1])
                yield padded[:, :, rows, columns]

    def spread(self, padded):
        """Return a new array ``(channels, taps, batch, height, width)`` of what all windows see."""
        channels, batch = padded.shape[:2]
        count = self.kernel[0] * self.kernel[1]
        taps = numpy.empty((channels, count, batch) + self.output, dtype=padded.dtype)
        for index, view in enumerate(self.taps(padded)):
            taps[:, index] = view
        return taps

    def gather(self, taps, padded):
        """Add what windows hold, as ``spread`` returns it, to the places in ``padded`` that it was read from."""
        channels, batch = padded.shape[:2]
        taps = taps.reshape((channels, -1, batch) + self.output)
        for index, view in enumerate(self.taps(padded)):
            numpy.add(view, taps[:, index], out=view)

    def _overlap(self, images):
        """Indices of one region: where it is in the padded images, and where in the images themselves."""
        sizes = [
            min(size, reach - padding) for size, reach, padding in zip(images.shape[2:], self._reach, self.padding)
        ]
        everything = (slice(None), slice(None))
        here = tuple(slice(padding, padding + size) for padding, size in zip(self.padding, sizes))
        return everything + here, everything + tuple(slice(size) for size in sizes)


# Windows are spread for so many bytes at once: large enough for the matrix product, small enough for the memory of a
# laptop (a whole batch of VGG-16 would take a gigabyte). For the same reason they are spread again when going back.
_SPREAD_BYTES = 32 * 2**20


class Conv2d(ReferenceLayer):
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
        image_gradient: Any = numpy.zeros_like(images) if self.wants_input_gradient else None
        for ins, outs in self._groups(images):
            padded = self._sliding.pad(images[ins], 0)
            padded_gradient: Any = numpy.zeros_like(padded) if self.wants_input_gradient else None
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


class MaxPool(ReferenceLayer):
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


class AvgPool(ReferenceLayer):
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
