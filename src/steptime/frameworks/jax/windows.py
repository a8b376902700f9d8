"""Convolution and pooling in JAX: the operations of ``lax``, and hand-written forms that a CPU computes faster.

The hand-written forms take a window that slides over images for one strided view per position within it. XLA's own
windows become loops over single values on a CPU; strided views fuse into loops over vectors.
"""

import functools

import jax
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


LAX, HAND_WRITTEN = "lax", "hand_written"
"""Values of the option ``windows``: JAX's own operations, as flax calls them, or the forms of this file."""
_SMALL_IMAGE = 16


def convolution(layer, windows):
    """Return the function ``(images, weight)`` of a ``conv2d``; weights are (height, width, in, out).

    Args:
        layer: JSON.
        windows: ``LAX`` or ``HAND_WRITTEN``. Of the hand-written forms the fastest on one core of a CPU is taken: XLA
            falls back to a loop over single values (80 times slower) where the kernel is larger than the image, and
            for a kernel of one value, and for small images, a product is never slower.
    """
    if windows == LAX:
        return _LaxConvolution(layer)
    taps = Taps(layer)
    rows, columns = layer["output_shape"][1:]
    small = taps.kernel == (1, 1) or rows * columns <= _SMALL_IMAGE
    one = _Product(taps) if small else _LaxConvolution(layer)
    groups = layer["attributes"]["groups"]
    if groups == 1:
        return one

    def in_parts(images, weight):
        """XLA has no fast gradient of a grouped convolution on a CPU."""
        parts = zip(numpy.split(images, groups, -1), numpy.split(weight, groups, -1))
        return numpy.concatenate([one(*part) for part in parts], -1)

    return in_parts


class _LaxConvolution(object):
    """XLA's own convolution."""

    def __init__(self, layer):
        self._stride = layer["attributes"]["stride"]
        self._edges = [(pad, pad) for pad in layer["attributes"]["padding"]]

    def __call__(self, images, weight):
        return lax.conv_general_dilated(
            images,
            weight,
            self._stride,
            self._edges,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=images.shape[-1] // weight.shape[2],
        )


class _Product(object):
    """One product of matrices: a row for each place, a column for each value under the window."""

    def __init__(self, taps):
        self._taps = taps

    def __call__(self, images, weight):
        views = self._taps.views(images, 0)
        under = views[0] if len(views) == 1 else numpy.concatenate(views, -1)
        return under @ weight.reshape(-1, weight.shape[-1])


def max_pooling(layer, windows):
    """Return the function of a ``max_pool``: of equal values the first in reading order gets the gradient."""
    taps = Taps(layer)
    if windows == LAX:
        return lambda images: _reduced(taps, images, -numpy.inf, lax.max)
    return functools.partial(_max, taps)


def average_pooling(layer, windows):
    """Return the function of an ``avg_pool``, in which padding counts as zeros."""
    taps = Taps(layer)
    values = taps.kernel[0] * taps.kernel[1]
    if windows == LAX:
        return lambda images: _reduced(taps, images, 0.0, lax.add) / values
    return lambda images: functools.reduce(numpy.add, taps.views(images, 0)) / values


def _reduced(taps, images, start, operation):
    """Return XLA's own pooling of ``images``, whose edges hold ``start``."""
    edges = ((0, 0),) + taps.edges + ((0, 0),)
    return lax.reduce_window(images, start, operation, (1,) + taps.kernel + (1,), (1,) + taps.stride + (1,), edges)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(taps, images):
    """The largest of the views.

    A CPU takes a quarter of the time that XLA's own window and its gradient (a scattering, value by value) take.
    """
    return functools.reduce(numpy.maximum, taps.views(images, -numpy.inf))


def _max_forward(taps, images):
    """Return the largest of the views, and which view it is.

    The backward pass must not look for it again: XLA may compute ``images`` a second time in another fusion, whose
    rounding differs, and then no view equals the largest and its gradient is lost.
    """
    views = taps.views(images, -numpy.inf)
    largest, winner = views[0], numpy.zeros(views[0].shape, numpy.int32)
    for place, view in enumerate(views[1:], 1):
        larger = view > largest
        largest, winner = numpy.where(larger, view, largest), numpy.where(larger, place, winner)
    return largest, (images, winner)


def _max_backward(taps, saved, gradient):
    images, winner = saved  # of the images only the shape is used
    count = taps.kernel[0] * taps.kernel[1]
    parts = [numpy.where(winner == place, gradient, numpy.zeros_like(gradient)) for place in range(count)]
    return jax.linear_transpose(lambda like: taps.views(like, 0), images)(parts)


_max.defvjp(_max_forward, _max_backward)
