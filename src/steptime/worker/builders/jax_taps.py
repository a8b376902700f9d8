"""A window that slides over images as one strided view per place in it.

XLA's own windows become loops over single values on a CPU; strided views fuse into loops over vectors.
"""

from jax import lax, numpy


class Taps(object):
    """The views of a layer with a window: ``kernel`` many, each of the output's height and width."""

    def __init__(self, layer):
        attributes = layer["attributes"]
        self.kernel, self.stride = tuple(attributes["kernel"]), tuple(attributes["stride"])
        self._counts = tuple(layer["output_shape"][1:])
        sizes = zip(layer["input_shapes"][0][1:], self._counts, self.kernel, self.stride, attributes["padding"])
        # In ceil mode the last window may reach beyond the symmetric padding; where not all is used, less is padded.
        self.edges = tuple(
            (pad, max(0, (count - 1) * step + window - size - pad)) for size, count, window, step, pad in sizes
        )

    def padded(self, images, value):
        """Return ``images`` with the layer's edges of ``value``."""
        if not any(self.edges[0] + self.edges[1]):
            return images
        return numpy.pad(images, ((0, 0),) + self.edges + ((0, 0),), constant_values=value)

    def views(self, images, value):
        """Return the views in reading order, of images with edges of ``value``."""
        padded = self.padded(images, value)
        batch, _, _, channels = padded.shape
        rows, columns = self._counts
        down, right = self.stride
        return [
            lax.slice(
                padded,
                (0, row, column, 0),
                (batch, row + (rows - 1) * down + 1, column + (columns - 1) * right + 1, channels),
                (1, down, right, 1),
            )
            for row in range(self.kernel[0])
            for column in range(self.kernel[1])
        ]
