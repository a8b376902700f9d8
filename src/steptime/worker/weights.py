"""The initial weights of a workload, computed from its layers and a seed, and what turns by rotary positions.

Every worker of every framework computes them instead of reading a file, so that all start from the same values.
numpy's ``RandomState`` keeps its stream across versions (it is frozen), which makes this hold from numpy 1.16 on.
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

_TABLES = ("embedding", "class_token", "positions", "segment")
"""Kinds whose weights are vectors of tokens and multiply nothing."""
_TABLE_BOUND = 0.02 * 3**0.5
"""Of uniform values with the standard deviation 0.02, as in the ViTs and GPTs that were published."""


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
