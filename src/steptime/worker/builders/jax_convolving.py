"""The forms of a convolution, and which of them is the fastest for a layer."""

from jax import lax, numpy

from steptime.worker.builders.jax_taps import Taps

_SMALL_IMAGE = 16


def convolution(layer, device):
    """Return the function ``(images, weight)`` of a ``conv2d``; weights are (height, width, in, out)."""
    groups = layer["attributes"]["groups"]
    if device == "cuda":
        return _Windowed(layer)
    one = _fastest(layer)
    if groups == 1:
        return one

    def in_parts(images, weight):
        """XLA has no fast gradient of a grouped convolution on a CPU."""
        parts = zip(numpy.split(images, groups, -1), numpy.split(weight, groups, -1))
        return numpy.concatenate([one(*part) for part in parts], -1)

    return in_parts


def _fastest(layer):
    """Choose among the forms by what was measured on one core of a CPU.

    XLA falls back to a loop over single values (80 times slower) where the kernel is larger than the image. For a
    kernel of one value, and for small images, a product is never slower.
    """
    taps = Taps(layer)
    rows, columns = layer["output_shape"][1:]
    if taps.kernel == (1, 1) or rows * columns <= _SMALL_IMAGE:
        return _Product(taps)
    return _Windowed(layer)


class _Windowed(object):
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
