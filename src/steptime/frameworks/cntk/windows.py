"""Layers that move a window over an image, in CNTK, which knows no padding but its own.

``auto_padding`` puts the windows' centres on the input's cells, the first on the first. Where that is what the workload
says, it is used, because it costs nothing; elsewhere the image is padded by a layer of its own, which copies it.
"""

import cntk

_LOWEST = -3e38
"""Below every value that a network computes: a padding that never wins."""


def convolved(layer, x, weight):
    """Return the convolution of ``x`` with ``weight`` (out, in, height, width) as the layer describes it."""
    attributes = layer["attributes"]
    x, automatic = _padded(layer, x, 0.0)
    return cntk.convolution(
        weight,
        x,
        strides=(1,) + tuple(attributes["stride"]),
        auto_padding=[False] + automatic,
        groups=attributes["groups"],
    )


def pooled(layer, x, kind):
    """Return the pooling of ``x`` by CNTK's ``kind`` as the layer describes it."""
    attributes = layer["attributes"]
    x, automatic = _padded(layer, x, _LOWEST if kind == cntk.MAX_POOLING else 0.0)
    return cntk.pooling(
        x,
        kind,
        tuple(attributes["kernel"]),
        tuple(attributes["stride"]),
        auto_padding=[False] + automatic,
        include_pad=True,
    )


def _padded(layer, x, value):
    """Return ``x``, padded with ``value`` if it must be, and for each axis whether CNTK shall pad it by itself."""
    attributes = layer["attributes"]
    axes = list(
        zip(
            attributes["kernel"],
            attributes["stride"],
            attributes["padding"],
            layer["input_shapes"][0][1:],
            layer["output_shape"][1:],
        )
    )
    automatic = [_is_automatic(*axis) for axis in axes]
    pattern = [(0, 0) if own else _needed(*axis) for own, axis in zip(automatic, axes)]
    if any(map(any, pattern)):
        x = cntk.pad(x, [(0, 0)] + pattern, cntk.CONSTANT_PAD, value)
    return x, automatic


def _is_automatic(kernel, stride, padding, size, count):
    """Whether CNTK's own padding of an axis is the workload's: as many windows, at the same places.

    It is refused for a window that is larger than the input, and spreads a rest of two cells or more over both ends.
    """
    centred = kernel % 2 == 1 and padding == (kernel - 1) // 2 > 0
    return centred and kernel <= size and (size - 1) % stride < 2 and (size - 1) // stride + 1 == count  # noqa: PLR2004


def _needed(kernel, stride, padding, size, count):
    """The padding in front and behind with which ``count`` windows, and no more, fit an axis."""
    return padding, max(0, (count - 1) * stride + kernel - size - padding)
