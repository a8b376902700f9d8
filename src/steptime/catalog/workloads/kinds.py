"""The kinds of layer: for each, the shape of its output and the parameters it owns.

Shapes are per sample and channels first: ``(channels, height, width)``, ``(tokens, features)`` or ``(features,)``. An
embedding takes ``(tokens,)`` whole numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from steptime.errors import WorkloadError

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]
ShapeRule = Callable[[Sequence[Shape], Attributes], Shape]
ParameterRule = Callable[[Sequence[Shape], Attributes], dict[str, Shape]]

_IMAGE_AXES = 3
_SEQUENCE_AXES = 2


def _same(inputs: Sequence[Shape], _: Attributes) -> Shape:
    return inputs[0]


def _conv2d(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    channels, height, width = _image(inputs[0])
    if channels % attributes["groups"] or attributes["out_channels"] % attributes["groups"]:
        message = f"{channels} and {attributes['out_channels']} channels do not part into {attributes['groups']} groups"
        raise WorkloadError(message)
    sizes = _window((height, width), attributes, ceil_mode=False)
    return (attributes["out_channels"], *sizes)


def _pool(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    channels, height, width = _image(inputs[0])
    return (channels, *_window((height, width), attributes, ceil_mode=attributes["ceil_mode"]))


def _image(shape: Shape) -> Shape:
    if len(shape) != _IMAGE_AXES:
        message = f"needs an image (channels, height, width), got {list(shape)}"
        raise WorkloadError(message)
    return shape


def _window(sizes: Shape, attributes: Attributes, *, ceil_mode: bool) -> Shape:
    """Output sizes of a sliding window; in ceil mode the last one must start inside the input or its left padding."""
    result = []
    for size, kernel, stride, padding in zip(
        sizes, attributes["kernel"], attributes["stride"], attributes["padding"], strict=True
    ):
        span = size + 2 * padding - kernel
        if span < 0:
            message = f"a window of {kernel} does not fit an input of {size} with padding {padding}"
            raise WorkloadError(message)
        count = span // stride + 1
        if ceil_mode and span % stride and count * stride < size + padding:
            count += 1
        result.append(count)
    return tuple(result)


def _lrn(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    if attributes["size"] % 2 == 0:
        message = f"lrn needs an odd size, so that it has as many neighbours on either side, got {attributes['size']}"
        raise WorkloadError(message)
    return _image(inputs[0])


def _linear(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    if len(inputs[0]) == _IMAGE_AXES:
        message = f"needs a flat input, got {list(inputs[0])}; flatten it first"
        raise WorkloadError(message)
    return (*inputs[0][:-1], attributes["out_features"])


def _flatten(inputs: Sequence[Shape], _: Attributes) -> Shape:
    return (prod(inputs[0]),)


def _global_avg_pool(inputs: Sequence[Shape], _: Attributes) -> Shape:
    return (_image(inputs[0])[0], 1, 1)


def _add(inputs: Sequence[Shape], _: Attributes) -> Shape:
    if len(set(inputs)) != 1:
        message = f"add needs inputs of one shape, got {list(inputs)}"
        raise WorkloadError(message)
    return inputs[0]


def _concat(inputs: Sequence[Shape], _: Attributes) -> Shape:
    if len({shape[1:] for shape in inputs}) != 1:
        message = f"concat needs inputs that differ in channels only, got {list(inputs)}"
        raise WorkloadError(message)
    return (sum(shape[0] for shape in inputs), *inputs[0][1:])


def _tokens(inputs: Sequence[Shape], _: Attributes) -> Shape:
    channels, height, width = _image(inputs[0])
    return (height * width, channels)


def _sequence(shape: Shape) -> Shape:
    if len(shape) != _SEQUENCE_AXES:
        message = f"needs a sequence (tokens, features), got {list(shape)}"
        raise WorkloadError(message)
    return shape


def _embedding(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    if len(inputs[0]) != 1:
        message = f"needs the numbers of tokens, got {list(inputs[0])}"
        raise WorkloadError(message)
    return (*inputs[0], attributes["features"])


def _unembedding(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    return (_sequence(inputs[0])[0], attributes["vocabulary"])


def _class_token(inputs: Sequence[Shape], _: Attributes) -> Shape:
    tokens, features = _sequence(inputs[0])
    return (tokens + 1, features)


def _positions(inputs: Sequence[Shape], _: Attributes) -> Shape:
    return _sequence(inputs[0])


def _first_token(inputs: Sequence[Shape], _: Attributes) -> Shape:
    return (_sequence(inputs[0])[1],)


def _attention(inputs: Sequence[Shape], attributes: Attributes) -> Shape:
    tokens, features = _sequence(inputs[0])
    heads = attributes["heads"]
    shared = attributes.get("key_value_heads", heads)
    if heads < 1 or shared < 1 or heads % shared or features % (heads + 2 * shared):
        sharing = "" if shared == heads else f" that share the keys and values of {shared}"
        message = f"{features} features cannot be queries, keys and values of {heads} heads{sharing}"
        raise WorkloadError(message)
    width = features // (heads + 2 * shared)
    if "rotary_base" in attributes and width % 2:
        message = f"rotary positions turn pairs of features, and a head has {width}"
        raise WorkloadError(message)
    return (tokens, heads * width)


def _swiglu(inputs: Sequence[Shape], _: Attributes) -> Shape:
    tokens, features = _sequence(inputs[0])
    if features % 2:
        message = f"needs as many gates as values, got {features} features"
        raise WorkloadError(message)
    return (tokens, features // 2)


def _no_parameters(_: Sequence[Shape], __: Attributes) -> dict[str, Shape]:
    return {}


def _conv2d_parameters(inputs: Sequence[Shape], attributes: Attributes) -> dict[str, Shape]:
    out, groups = attributes["out_channels"], attributes["groups"]
    return _with_bias((out, inputs[0][0] // groups, *attributes["kernel"]), out, attributes)


def _linear_parameters(inputs: Sequence[Shape], attributes: Attributes) -> dict[str, Shape]:
    out = attributes["out_features"]
    return _with_bias((out, inputs[0][-1]), out, attributes)


def _with_bias(weight: Shape, out: int, attributes: Attributes) -> dict[str, Shape]:
    return {"weight": weight, "bias": (out,)} if attributes["bias"] else {"weight": weight}


def _batch_norm_parameters(inputs: Sequence[Shape], _: Attributes) -> dict[str, Shape]:
    return {"weight": (inputs[0][0],), "bias": (inputs[0][0],)}


def _layer_norm_parameters(inputs: Sequence[Shape], _: Attributes) -> dict[str, Shape]:
    return {"weight": inputs[0][-1:], "bias": inputs[0][-1:]}


def _rms_norm_parameters(inputs: Sequence[Shape], _: Attributes) -> dict[str, Shape]:
    return {"weight": inputs[0][-1:]}


def _embedding_parameters(_: Sequence[Shape], attributes: Attributes) -> dict[str, Shape]:
    return {"weight": (attributes["vocabulary"], attributes["features"])}


def _unembedding_parameters(_: Sequence[Shape], attributes: Attributes) -> dict[str, Shape]:
    return {"bias": (attributes["vocabulary"],)} if attributes["bias"] else {}


def _segment_parameters(inputs: Sequence[Shape], attributes: Attributes) -> dict[str, Shape]:
    return {"weight": (attributes["segments"], inputs[0][1])}


def _class_token_parameters(inputs: Sequence[Shape], _: Attributes) -> dict[str, Shape]:
    return {"weight": (1, inputs[0][1])}


def _positions_parameters(inputs: Sequence[Shape], _: Attributes) -> dict[str, Shape]:
    return {"weight": inputs[0]}


KINDS: dict[str, tuple[ShapeRule, ParameterRule]] = {
    "conv2d": (_conv2d, _conv2d_parameters),
    "linear": (_linear, _linear_parameters),
    "batch_norm": (_same, _batch_norm_parameters),
    "relu": (_same, _no_parameters),
    "tanh": (_same, _no_parameters),
    "sigmoid": (_same, _no_parameters),
    "max_pool": (_pool, _no_parameters),
    "avg_pool": (_pool, _no_parameters),
    "global_avg_pool": (_global_avg_pool, _no_parameters),
    "lrn": (_lrn, _no_parameters),
    "dropout": (_same, _no_parameters),
    "flatten": (_flatten, _no_parameters),
    "add": (_add, _no_parameters),
    "concat": (_concat, _no_parameters),
    "tokens": (_tokens, _no_parameters),
    "embedding": (_embedding, _embedding_parameters),
    "unembedding": (_unembedding, _unembedding_parameters),
    "class_token": (_class_token, _class_token_parameters),
    "positions": (_positions, _positions_parameters),
    "segment": (_positions, _segment_parameters),
    "first_token": (_first_token, _no_parameters),
    "layer_norm": (_positions, _layer_norm_parameters),
    "rms_norm": (_positions, _rms_norm_parameters),
    "gelu": (_same, _no_parameters),
    "swiglu": (_swiglu, _no_parameters),
    "attention": (_attention, _no_parameters),
}
OF_TRANSFORMERS = frozenset(
    {
        "tokens",
        "embedding",
        "unembedding",
        "class_token",
        "positions",
        "segment",
        "first_token",
        "layer_norm",
        "rms_norm",
        "gelu",
        "swiglu",
        "attention",
    }
)
"""The kinds that frameworks from before transformers lack."""
