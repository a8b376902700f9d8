"""Between the workload's layout (channels first) and that of libraries with channels last, in numpy.

On a CPU TensorFlow convolves channels-last only, JAX does it faster, and both flatten what they have: height, width,
channels. The workload flattens channels, height, width. Rather than transposing activations in every step, the weights
of a linear layer behind a flatten are permuted once, on their way in and out.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy

ORDER_IS_FREE = ("linear", "relu", "tanh", "sigmoid", "dropout", "flatten")
"""Layers that treat each value alone pass any order of flat values on, and a linear layer's weight knows the order."""


def channels_last(array: numpy.ndarray) -> numpy.ndarray:
    """Return a batch of images with their channels last; a batch of flat values or of sequences stays as it is."""
    return numpy.ascontiguousarray(numpy.moveaxis(array, 1, -1)) if array.ndim > 3 else array  # noqa: PLR2004 - images


def channels_first(array: numpy.ndarray) -> numpy.ndarray:
    """Undo ``channels_last``."""
    return numpy.ascontiguousarray(numpy.moveaxis(array, -1, 1)) if array.ndim > 3 else array  # noqa: PLR2004 - images


def shape_channels_first(shape: Sequence[int]) -> List[int]:
    """Return the shape of a batch with its channels first, where it is one of images with their channels last."""
    batch, *others = shape
    return [batch] + (others[-1:] + others[:-1] if len(others) > 2 else others)  # noqa: PLR2004 - images


def flat_orders(layers: List[Dict[str, Any]]) -> Dict[str, Tuple[int, int, int]]:
    """Return ``{name: (channels, height, width)}`` of the layers whose flat output is in the order of channels last.

    A flatten starts such an order where the two orders differ; layers that treat each value alone pass it on; a
    linear layer ends it. ``("input")`` is never in it.

    Args:
        layers: of a workload's JSON.
    """
    orders: Dict[str, Tuple[int, int, int]] = {}
    for layer in layers:
        source = layer["inputs"][0]
        if layer["kind"] == "flatten" and len(layer["input_shapes"][0]) == 3:  # noqa: PLR2004 - images
            channels, height, width = layer["input_shapes"][0]
            if channels > 1 and height * width > 1:
                orders[layer["name"]] = (channels, height, width)
        elif layer["kind"] in ("relu", "tanh", "sigmoid", "dropout", "flatten") and source in orders:
            orders[layer["name"]] = orders[source]
    return orders


def to_own(kind: str, array: numpy.ndarray, order: Optional[Tuple[int, int, int]] = None) -> numpy.ndarray:
    """Return a parameter of a layer of ``kind`` with channels last, from the workload's.

    ``order`` is that of the layer's flat input, if it has one.
    """
    if kind == "conv2d" and array.ndim == 4:  # noqa: PLR2004 - a weight; its bias has one axis
        return numpy.ascontiguousarray(array.transpose(2, 3, 1, 0))
    if kind == "linear" and array.ndim == 2:  # noqa: PLR2004 - a weight
        if order is not None:
            array = array.reshape((-1,) + order).transpose(0, 2, 3, 1).reshape(array.shape)
        return numpy.ascontiguousarray(array.T)
    return array


def to_canonical(kind: str, array: numpy.ndarray, order: Optional[Tuple[int, int, int]] = None) -> numpy.ndarray:
    """Undo ``to_own``."""
    if kind == "conv2d" and array.ndim == 4:  # noqa: PLR2004 - a weight; its bias has one axis
        return numpy.ascontiguousarray(array.transpose(3, 2, 0, 1))
    if kind == "linear" and array.ndim == 2:  # noqa: PLR2004 - a weight
        array = array.T
        if order is not None:
            channels, height, width = order
            array = array.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(array.shape)
        return numpy.ascontiguousarray(array)
    return array
