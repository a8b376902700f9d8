"""Each kind of layer over JAX, channels last.

A layer is made from its JSON and the option ``windows`` (``lax`` or ``hand_written``). It is a function of its own
parameters ``{role: array}``, its inputs, the running statistics (a dictionary in which it replaces its own) and the
random key of the step, which is None in evaluation.
Parameters are float32; with activations in bfloat16 they are cast where they are used.
"""

import zlib

import jax
from jax import numpy
from jax.nn import log_softmax

from steptime.frameworks.jax.windows import average_pooling, convolution, max_pooling
from steptime.worker.weights import rotary_turns


def _conv2d(layer, windows):
    convolve = convolution(layer, windows)

    def apply(own, sources, *_):
        (values,) = sources
        return _biased(convolve(values, own["weight"].astype(values.dtype)), own)

    return apply


def _linear(*_):
    def apply(own, sources, *_):
        (values,) = sources
        return _biased(values @ own["weight"].astype(values.dtype), own)

    return apply


def _biased(values, own):
    return values + own["bias"].astype(values.dtype) if "bias" in own else values


def _batch_norm(layer, _):
    epsilon, newest = layer["attributes"]["epsilon"], layer["attributes"]["momentum"]
    names = layer["name"] + ".mean", layer["name"] + ".variance"

    def apply(own, sources, statistics, key):
        (values,) = sources
        exact = values.astype(numpy.float32)
        if key is None:
            mean, variance = (statistics[name][0] for name in names)
            scale = own["weight"] * jax.lax.rsqrt(variance + epsilon)
            return ((exact - mean) * scale + own["bias"]).astype(values.dtype)
        axes = tuple(range(values.ndim - 1))
        mean = exact.mean(axes)
        variance = numpy.square(exact - mean).mean(axes)
        count = exact.size / exact.shape[-1]
        for name, measured in zip(names, (mean, variance * (count / max(count - 1, 1)))):  # unbiased, as elsewhere
            statistics[name] = statistics[name] + newest * (jax.lax.stop_gradient(measured) - statistics[name])
        scale = own["weight"] * jax.lax.rsqrt(variance + epsilon)
        return ((exact - mean) * scale + own["bias"]).astype(values.dtype)

    return apply


def _pool(pooling):
    def make(layer, windows):
        pool = pooling(layer, windows)
        return lambda _, sources, *__: pool(*sources)

    return make


def _lrn(layer, _):
    attributes = layer["attributes"]
    size = attributes["size"]
    around = (size - 1) // 2
    share = attributes["alpha"] / size

    def apply(_, sources, *__):
        (values,) = sources
        exact = values.astype(numpy.float32)
        squares = numpy.pad(numpy.square(exact), [(0, 0)] * (exact.ndim - 1) + [(around, size - 1 - around)])
        channels = exact.shape[-1]
        total = sum(squares[..., start : start + channels] for start in range(size))
        return (exact * (attributes["k"] + share * total) ** -attributes["beta"]).astype(values.dtype)

    return apply


def _dropout(layer, _):
    rate = layer["attributes"]["rate"]
    own_number = zlib.crc32(layer["name"].encode())

    def apply(_, sources, __, key):
        (values,) = sources
        if key is None:
            return values
        kept = jax.random.bernoulli(jax.random.fold_in(key, own_number), 1.0 - rate, values.shape)
        return numpy.where(kept, values / (1.0 - rate), 0.0).astype(values.dtype)

    return apply if rate else (lambda _, sources, *__: sources[0])


def _tokens(images):
    return images.reshape(len(images), -1, images.shape[-1])


def _embedding(*_):
    return lambda own, sources, *_: own["weight"][sources[0]]


def _unembedding(*_):
    return lambda own, sources, *_: _biased(sources[0] @ own["weight"].astype(sources[0].dtype).T, own)


def _class_token(*_):
    def apply(own, sources, *_):
        (values,) = sources
        first = numpy.broadcast_to(own["weight"].astype(values.dtype), (len(values), 1, values.shape[-1]))
        return numpy.concatenate([first, values], 1)

    return apply


def _positions(*_):
    return lambda own, sources, *_: sources[0] + own["weight"].astype(sources[0].dtype)


def _segment(*_):
    return lambda own, sources, *_: sources[0] + own["weight"][0].astype(sources[0].dtype)


def _layer_norm(layer, _):
    epsilon = layer["attributes"]["epsilon"]

    def apply(own, sources, *_):
        (values,) = sources
        # By the means of values and squares: from the squares of differences, steps of gpt2_tiny take 6 % longer.
        scaled = jax.nn.standardize(values.astype(numpy.float32), epsilon=epsilon)
        return (scaled * own["weight"] + own["bias"]).astype(values.dtype)

    return apply


def _rms_norm(layer, _):
    epsilon = layer["attributes"]["epsilon"]

    def apply(own, sources, *_):
        (values,) = sources
        exact = values.astype(numpy.float32)
        exact *= jax.lax.rsqrt(numpy.square(exact).mean(-1, keepdims=True) + epsilon)
        return (exact * own["weight"]).astype(values.dtype)

    return apply


def _swiglu(values):
    gates, contents = numpy.split(values, 2, -1)
    return jax.nn.silu(gates) * contents


def _gelu(layer, _):
    approximate = layer["attributes"]["approximate"]
    return lambda _, sources, *__: jax.nn.gelu(sources[0], approximate=approximate)


def _attention(layer, _):
    heads, causal = layer["attributes"]["heads"], layer["attributes"]["causal"]
    shared = layer["attributes"].get("key_value_heads", heads)
    turns = rotary_turns(layer)

    def apply(_, sources, *__):
        (values,) = sources
        batch, tokens, _ = values.shape
        rows = values.reshape(batch, tokens, heads + 2 * shared, -1)
        queries, keys, contents = numpy.split(rows, (heads, heads + shared), 2)
        if turns:
            queries, keys = _turned(queries, *turns), _turned(keys, *turns)
        joined = jax.nn.dot_product_attention(queries, keys, contents, is_causal=causal)
        return joined.reshape(batch, tokens, -1)

    return apply


def _turned(heads, cosines, sines):
    """Return queries or keys (batch, tokens, heads, features) turned by the angles of their places."""
    cosines, sines = (each[:, None].astype(heads.dtype) for each in (cosines, sines))
    first, second = numpy.split(heads, 2, -1)
    return numpy.concatenate([first * cosines - second * sines, second * cosines + first * sines], -1)


def _of_each_value(function):
    return lambda *_: lambda _, sources, *__: function(*sources)


def _add(first, *others):
    for other in others:
        first = first + other
    return first


LAYERS = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _of_each_value(jax.nn.relu),
    "tanh": _of_each_value(numpy.tanh),
    "sigmoid": _of_each_value(jax.nn.sigmoid),
    "max_pool": _pool(max_pooling),
    "avg_pool": _pool(average_pooling),
    "global_avg_pool": _of_each_value(lambda values: values.mean((1, 2), keepdims=True)),
    "lrn": _lrn,
    "dropout": _dropout,
    "flatten": _of_each_value(lambda values: values.reshape(len(values), -1)),
    "add": _of_each_value(_add),
    "concat": _of_each_value(lambda *values: numpy.concatenate(values, -1)),
    "tokens": _of_each_value(_tokens),
    "embedding": _embedding,
    "unembedding": _unembedding,
    "class_token": _class_token,
    "positions": _positions,
    "segment": _segment,
    "first_token": _of_each_value(lambda values: values[:, 0]),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "swiglu": _of_each_value(_swiglu),
    "gelu": _gelu,
    "attention": _attention,
}


def softmax_cross_entropy(outputs, targets, smoothing=0.0):
    """Mean over the batch; of ``targets``, class indices, the share ``smoothing`` is spread over all classes."""
    if smoothing:
        logarithms = log_softmax(outputs)
        own = numpy.take_along_axis(logarithms, targets[:, None], -1)[:, 0]
        return -((1 - smoothing) * own + smoothing * logarithms.mean(-1)).mean()
    return -numpy.take_along_axis(log_softmax(outputs), targets[:, None], -1).mean()


def mean_squared_error(outputs, targets):
    """Mean over all elements."""
    return numpy.square(outputs - targets).mean()


def token_cross_entropy(outputs, targets, smoothing=0.0):
    """Mean over all tokens whose target is not negative; ``outputs`` are (batch, tokens, classes)."""
    logarithms = log_softmax(outputs)
    predicted = targets >= 0
    own = numpy.take_along_axis(logarithms, numpy.where(predicted, targets, 0)[..., None], -1)[..., 0]
    if smoothing:
        own = (1 - smoothing) * own + smoothing * logarithms.mean(-1)
    return -numpy.where(predicted, own, 0.0).sum() / predicted.sum()


LOSSES = {
    "softmax_cross_entropy": softmax_cross_entropy,
    "mean_squared_error": mean_squared_error,
    "next_token_cross_entropy": token_cross_entropy,
    "masked_token_cross_entropy": token_cross_entropy,
}
