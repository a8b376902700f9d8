"""Windows that slide over images, as strided slices: one slice per position within the window.

``taps`` goes over the positions in a window, not over the windows: the loops of Python are then as short as the window
is small.
"""

import numpy


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
