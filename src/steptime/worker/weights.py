"""The initial weights of a workload, computed from its layers and a seed, and what turns by rotary positions.

Every worker of every framework computes them instead of reading a file, so that all start from the same values.
numpy's ``RandomState`` keeps its stream across versions (it is frozen), which makes this hold from numpy 1.16 on.

Between the workload's layout (channels first) and that of libraries with channels last, in numpy.

On a CPU TensorFlow convolves channels-last only, JAX does it faster, and both flatten what they have: height, width,
channels. The workload flattens channels, height, width. Rather than transposing activations in every step, the weights
of a linear layer behind a flatten are permuted once, on their way in and out.

A sketch of weights: short vectors by which the distance between two large arrays can be told.

A sketch is linear, so that the sketch of a difference, a sum or an average of arrays is the same of their sketches.
"""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy

_TABLES = ("embedding", "class_token", "positions", "segment")
"""Kinds whose weights are vectors of tokens and multiply nothing."""
_TABLE_BOUND = 0.02 * 3**0.5
"""Of uniform values with the standard deviation 0.02, as in the ViTs and GPTs that were published."""

NUDGES = (2.0**-21, 2.0**-19, 2.0**-17, 2.0**-15)
"""Of a weight: what single precision is off in a step, and after some steps, and nothing beside a gradient. In networks
of a million activations only the smallest moves few of them across zero."""


def parsed_nudges(text: str) -> Dict[int, List[int]]:
    """Return ``{step: [seed]}`` of ``3@0-1 8@7-10``, steps counted from 0 and the last left out; ``none`` has none."""
    found: Dict[int, List[int]] = {}
    for each in [] if text == "none" else text.split():
        seed, _, steps = each.partition("@")
        first, _, last = steps.partition("-")
        for step in range(int(first), int(last)):
            found.setdefault(step, []).append(int(seed))
    return found


class FirstWeights(object):
    """Whence the weights come that a training of this process begins with."""

    path: Optional[str] = None
    """A file of arrays by their names; None for those that are drawn."""


def initial_weights(layers: List[Dict[str, Any]], seed: int) -> Dict[str, numpy.ndarray]:
    """Return ``{name: float32 array}`` for all parameters of ``layers``, in their order.

    Weights are uniform with the variance 2 / fan_in (He et al. 2015), biases are small and not zero, so that a
    forgotten bias shows; those of a linear layer are multiplied by its ``initial_scale``. Normalisation scales start at
    the layer's ``initial_scale`` and shifts at 0, vectors of tokens with the standard deviation 0.02.

    Args:
        layers: the ``layers`` list of a workload's JSON.
        seed: a non-negative integer.
    """
    weights = {}
    if FirstWeights.path is not None:
        with numpy.load(FirstWeights.path, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    for layer_index, layer in enumerate(layers):
        for parameter_index, parameter in enumerate(layer["parameters"]):
            size = _size(parameter["shape"])
            (values,) = weight_pieces(layers, seed, layer_index, parameter_index, size)
            weights[parameter["name"]] = values.reshape(parameter["shape"])
    return weights


def weight_pieces(
    layers: List[Dict[str, Any]], seed: int, layer_index: int, parameter_index: int, length: int
) -> Iterator[numpy.ndarray]:
    """Yield the initial values of one parameter as flat float32 arrays of ``length`` values, the last may be shorter.

    The values do not depend on ``length``: the stream of random numbers goes on from piece to piece.
    """
    layer = layers[layer_index]
    parameter = layer["parameters"][parameter_index]
    stream = numpy.random.RandomState([seed, layer_index, parameter_index])
    size = _size(parameter["shape"])
    for start in range(0, size, length):
        yield _values(stream, layer, parameter, min(length, size - start))


def rotary_turns(layer: Dict[str, Any]) -> Optional[Tuple[numpy.ndarray, numpy.ndarray]]:
    """Return cosines and sines of the angles by which a layer of attention turns queries and keys, None without.

    Both are float64 (tokens, pairs of features of a head), of place * base^(-2 pair / features) (Su et al. 2021), where
    a pair is a feature of the first half of a head and that of the second.
    """
    settings = layer["attributes"]
    if "rotary_base" not in settings:
        return None
    tokens, features = layer["output_shape"]
    width = features // settings["heads"]
    speeds = settings["rotary_base"] ** (-numpy.arange(0, width, 2) / float(width))
    angles = numpy.outer(numpy.arange(tokens), speeds)
    return numpy.cos(angles), numpy.sin(angles)


def is_decayed(settings: Dict[str, Any], axes: int) -> bool:
    """Return whether an array of so many axes decays, by the job's ``optimizer`` settings."""
    return axes > 1 or settings.get("decayed", "all") == "all"


def _values(
    stream: numpy.random.RandomState, layer: Dict[str, Any], parameter: Dict[str, Any], count: int
) -> numpy.ndarray:
    if layer["kind"] in ("batch_norm", "layer_norm", "rms_norm"):
        start = layer["attributes"].get("initial_scale", 1.0) if parameter["role"] == "weight" else 0.0
        return numpy.full(count, start, dtype=numpy.float32)
    if layer["kind"] in _TABLES:
        bound = _TABLE_BOUND
    elif parameter["role"] == "bias":
        bound = 0.01
    else:
        bound = layer["attributes"].get("initial_scale", 1.0) * (6.0 / _size(parameter["shape"][1:])) ** 0.5
    return stream.uniform(-bound, bound, count).astype(numpy.float32)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


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


LENGTH = 256
"""Values of a sketch. The squared distance of two sketches is that of the arrays within sqrt(2 / 256) = 9 %."""


class Sketcher(object):
    """Makes sketches of arrays by name: each value has a random sign and is added to one of ``LENGTH`` sums.

    AMS and count sketches: Alon, Matias, Szegedy, STOC 1996; Charikar, Chen, Farach-Colton, ICALP 2002. An array of up
    to ``LENGTH`` values is its own sketch. Signs depend on the name of an array and the place of a value alone.
    """

    def __init__(self) -> None:
        self._signs: Dict[str, numpy.ndarray] = {}

    def sketch(self, arrays: Mapping[str, numpy.ndarray]) -> Dict[str, numpy.ndarray]:
        """Return ``{name: float64 array of LENGTH values}`` of ``{name: array}``, or of fewer values as they are."""
        return {name: self._sketch(name, numpy.asarray(array)) for name, array in arrays.items()}

    def _sketch(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        values = array.reshape(-1)
        if values.size <= LENGTH:
            return values.astype(numpy.float64)
        if name not in self._signs:
            stream = numpy.random.RandomState([ord(letter) for letter in name])
            self._signs[name] = numpy.frombuffer(stream.bytes(values.size), numpy.int8) & 1
        total = numpy.zeros(LENGTH)
        rows = values.size // LENGTH
        piece = 4096  # rows at a time, so that a gigabyte of weights needs megabytes more
        for start in range(0, rows, piece):
            part = slice(start * LENGTH, min(start + piece, rows) * LENGTH)
            signed = values[part].astype(numpy.float64)
            signed *= 1.0 - 2.0 * self._signs[name][part]
            total += signed.reshape(-1, LENGTH).sum(axis=0)
        rest = slice(rows * LENGTH, None)
        total[: values.size - rows * LENGTH] += values[rest] * (1.0 - 2.0 * self._signs[name][rest])
        return total
