"""Each kind of layer and each loss as MXNet symbols, made from a layer's JSON and the symbols of its inputs.

Weights are variables of the workload's names; the turns of rotary positions are variables too, which are not trained.
"""

import math
from typing import Any, Callable, Dict

import mxnet

TARGETS = "targets"
"""The variable of the targets."""
TURNS = ("cosines", "sines")
"""Of the angles of rotary positions: the variables of a layer of attention, named behind its own name."""
_NEVER = 1e30
"""By which a score is less that must get no share."""


def _variables(layer: Dict[str, Any], names: Dict[str, str]) -> Dict[str, Any]:
    """Return ``{MXNet's name of an input: variable}`` for the layer's parameters, by their role."""
    return {names[each["role"]]: mxnet.sym.Variable(each["name"]) for each in layer["parameters"]}


def _window(layer: Dict[str, Any]) -> Dict[str, Any]:
    settings = layer["attributes"]
    return {
        "kernel": tuple(settings["kernel"]),
        "stride": tuple(settings["stride"]),
        "pad": tuple(settings["padding"]),
    }


def _conv2d(layer: Dict[str, Any], source: Any) -> Any:
    settings = layer["attributes"]
    return mxnet.sym.Convolution(
        source,
        name=layer["name"],
        num_filter=settings["out_channels"],
        num_group=settings["groups"],
        no_bias=not settings["bias"],
        **dict(_window(layer), **_variables(layer, {"weight": "weight", "bias": "bias"})),
    )


def _linear(layer: Dict[str, Any], source: Any) -> Any:
    settings = layer["attributes"]
    return mxnet.sym.FullyConnected(
        source,
        name=layer["name"],
        num_hidden=settings["out_features"],
        no_bias=not settings["bias"],
        flatten=len(layer["input_shapes"][0]) == 1,  # else of each token
        **_variables(layer, {"weight": "weight", "bias": "bias"}),
    )


def _batch_norm(layer: Dict[str, Any], source: Any) -> Any:
    settings = layer["attributes"]
    return mxnet.sym.BatchNorm(
        source,
        name=layer["name"],
        fix_gamma=False,
        eps=settings["epsilon"],
        momentum=1.0 - settings["momentum"],  # MXNet's is the weight of the past
        **_variables(layer, {"weight": "gamma", "bias": "beta"}),
    )


def _max_pool(layer: Dict[str, Any], source: Any) -> Any:
    window = _window(layer)
    if not layer["attributes"]["ceil_mode"]:
        return mxnet.sym.Pooling(source, name=layer["name"], pool_type="max", **window)
    pooled = mxnet.sym.Pooling(source, name=layer["name"], pool_type="max", pooling_convention="full", **window)
    made = [
        -(-(size + 2 * pad - kernel) // stride) + 1
        for size, kernel, stride, pad in zip(
            layer["input_shapes"][0][1:], window["kernel"], window["stride"], window["pad"]
        )
    ]
    wanted = layer["output_shape"][1:]
    if made == wanted:
        return pooled
    # MXNet keeps a last window that lies in the padding alone; the workload's rule has no such window.
    return mxnet.sym.slice(pooled, begin=(None, None, 0, 0), end=(None, None) + tuple(wanted))


def _avg_pool(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.Pooling(source, name=layer["name"], pool_type="avg", count_include_pad=True, **_window(layer))


def _global_avg_pool(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.Pooling(source, name=layer["name"], pool_type="avg", global_pool=True, kernel=(1, 1))


def _activation(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.Activation(source, name=layer["name"], act_type=layer["kind"])


def _lrn(layer: Dict[str, Any], source: Any) -> Any:
    settings = layer["attributes"]
    output = mxnet.sym.LRN(
        source,
        name=layer["name"],
        nsize=settings["size"],
        alpha=settings["alpha"],  # MXNet divides it by the size, as the workload's formula does
        beta=settings["beta"],
        knorm=settings["k"],
    )
    # MXNet 1.9 hands oneDNN the input of a LRN in plain order beside a gradient in the blocked order of the convolution
    # that follows, and the gradient behind it is wrong. A slice of everything has its gradient in plain order.
    return mxnet.sym.slice_axis(output, axis=0, begin=0, end=None)


def _dropout(layer: Dict[str, Any], source: Any) -> Any:
    rate = layer["attributes"]["rate"]
    return mxnet.sym.Dropout(source, name=layer["name"], p=rate) if rate else source


def _flatten(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.flatten(source, name=layer["name"])


def _add(layer: Dict[str, Any], *sources: Any) -> Any:
    if len(sources) == 2:  # noqa: PLR2004 - the operator of a pair is the one that runs in the blocked layout
        return mxnet.sym.elemwise_add(*sources, name=layer["name"])
    return mxnet.sym.add_n(*sources, name=layer["name"])


def _concat(layer: Dict[str, Any], *sources: Any) -> Any:
    return mxnet.sym.concat(*sources, dim=1, name=layer["name"])


def _tokens(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.transpose(mxnet.sym.reshape(source, shape=(0, 0, -1)), axes=(0, 2, 1), name=layer["name"])


def _embedding(layer: Dict[str, Any], numbers: Any, weight: Any) -> Any:
    vocabulary, features = layer["parameters"][0]["shape"]
    return mxnet.sym.Embedding(numbers, weight, input_dim=vocabulary, output_dim=features, name=layer["name"])


def _unembedding(layer: Dict[str, Any], values: Any, weight: Any) -> Any:
    return mxnet.sym.FullyConnected(
        values,
        weight,
        num_hidden=layer["attributes"]["vocabulary"],
        no_bias=not layer["attributes"]["bias"],
        flatten=False,
        name=layer["name"],
        **_variables(layer, {"bias": "bias"}),
    )


def _table(layer: Dict[str, Any]) -> Any:
    """Return the vectors of tokens as (1, tokens, features)."""
    (parameter,) = layer["parameters"]
    return mxnet.sym.expand_dims(mxnet.sym.Variable(parameter["name"], shape=parameter["shape"]), axis=0)


def _class_token(layer: Dict[str, Any], source: Any) -> Any:
    first = mxnet.sym.broadcast_like(_table(layer), source, lhs_axes=(0,), rhs_axes=(0,))
    return mxnet.sym.concat(first, source, dim=1, name=layer["name"])


def _positions(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.broadcast_add(source, _table(layer), name=layer["name"])


def _segment(layer: Dict[str, Any], source: Any) -> Any:
    first = mxnet.sym.slice_axis(_table(layer), axis=1, begin=0, end=1)
    return mxnet.sym.broadcast_add(source, first, name=layer["name"])


def _first_token(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.reshape(mxnet.sym.slice_axis(source, axis=1, begin=0, end=1), shape=(0, -1), name=layer["name"])


def _layer_norm(layer: Dict[str, Any], source: Any) -> Any:
    return mxnet.sym.LayerNorm(
        source,
        name=layer["name"],
        axis=-1,
        eps=layer["attributes"]["epsilon"],
        **_variables(layer, {"weight": "gamma", "bias": "beta"}),
    )


def _rms_norm(layer: Dict[str, Any], source: Any) -> Any:
    square = mxnet.sym.mean(mxnet.sym.square(source), axis=-1, keepdims=True)
    scaled = mxnet.sym.broadcast_mul(source, mxnet.sym.rsqrt(square + layer["attributes"]["epsilon"]))
    (parameter,) = layer["parameters"]
    weight = mxnet.sym.reshape(mxnet.sym.Variable(parameter["name"], shape=parameter["shape"]), shape=(1, 1, -1))
    return mxnet.sym.broadcast_mul(scaled, weight, name=layer["name"])


def _swiglu(layer: Dict[str, Any], source: Any) -> Any:
    gates, contents = mxnet.sym.split(source, num_outputs=2, axis=-1)
    return mxnet.sym.elemwise_mul(gates * mxnet.sym.sigmoid(gates), contents, name=layer["name"])


def _gelu(layer: Dict[str, Any], source: Any) -> Any:
    if layer["attributes"]["approximate"]:
        inner = (2 / math.pi) ** 0.5 * (source + 0.044715 * source * source * source)
        return 0.5 * source * (1.0 + mxnet.sym.tanh(inner))
    return mxnet.sym.LeakyReLU(source, act_type="gelu", name=layer["name"])


def _attention(layer: Dict[str, Any], source: Any) -> Any:
    """MXNet's own products want the batch second, and queries, keys and values of a head next to each other."""
    heads = layer["attributes"]["heads"]
    if "rotary_base" in layer["attributes"] or "key_value_heads" in layer["attributes"]:
        return _grouped_attention(layer, source)
    tokens, features = layer["output_shape"]
    parts = mxnet.sym.reshape(source, shape=(-1, tokens, 3, heads, features // heads))
    mixed = mxnet.sym.reshape(mxnet.sym.transpose(parts, axes=(1, 0, 3, 2, 4)), shape=(tokens, -1, 3 * features))
    scores = mxnet.sym.contrib.interleaved_matmul_selfatt_qk(mixed, heads=heads)
    joined = mxnet.sym.contrib.interleaved_matmul_selfatt_valatt(mixed, _shares(layer, scores), heads=heads)
    return mxnet.sym.transpose(joined, axes=(1, 0, 2), name=layer["name"])


def _grouped_attention(layer: Dict[str, Any], source: Any) -> Any:
    """The queries that share keys follow each other as if they were of more tokens."""
    heads = layer["attributes"]["heads"]
    shared = layer["attributes"].get("key_value_heads", heads)
    (tokens, features), group = layer["output_shape"], heads // shared
    width = features // heads
    rows = mxnet.sym.reshape(source, shape=(-1, tokens, heads + 2 * shared, width))
    turned = mxnet.sym.slice_axis(rows, axis=2, begin=0, end=heads + shared)
    if "rotary_base" in layer["attributes"]:
        cosines, sines = (mxnet.sym.Variable("%s.%s" % (layer["name"], name)) for name in TURNS)
        first, second = mxnet.sym.split(turned, num_outputs=2, axis=-1)
        turned = mxnet.sym.concat(
            mxnet.sym.broadcast_mul(first, cosines) - mxnet.sym.broadcast_mul(second, sines),
            mxnet.sym.broadcast_mul(second, cosines) + mxnet.sym.broadcast_mul(first, sines),
            dim=-1,
        )
    queries = mxnet.sym.slice_axis(turned, axis=2, begin=0, end=heads)
    queries = mxnet.sym.reshape(queries, shape=(-1, tokens, shared, group, width))
    queries = mxnet.sym.transpose(queries, axes=(3, 1, 0, 2, 4))
    queries = mxnet.sym.reshape(queries, shape=(group * tokens, -1, shared * width))
    keys = mxnet.sym.slice_axis(turned, axis=2, begin=heads, end=None)
    contents = mxnet.sym.slice_axis(rows, axis=2, begin=heads + shared, end=None)
    mixed = mxnet.sym.transpose(mxnet.sym.concat(keys, contents, dim=-1), axes=(1, 0, 2, 3))
    mixed = mxnet.sym.reshape(mixed, shape=(tokens, -1, shared * 2 * width))
    scores = mxnet.sym.contrib.interleaved_matmul_encdec_qk(queries, mixed, heads=shared)
    shares = _shares(layer, scores, group)
    joined = mxnet.sym.contrib.interleaved_matmul_encdec_valatt(mixed, shares, heads=shared)
    joined = mxnet.sym.reshape(joined, shape=(group, tokens, -1, shared, width))
    joined = mxnet.sym.transpose(joined, axes=(2, 1, 3, 0, 4))
    return mxnet.sym.reshape(joined, shape=(-1, tokens, features), name=layer["name"])


def _shares(layer: Dict[str, Any], scores: Any, group: int = 1) -> Any:
    """Return the softmax of ``scores`` (batch and heads, ``group`` times tokens, tokens), masked where it is causal."""
    if layer["attributes"]["causal"]:
        places = mxnet.sym.arange(layer["output_shape"][0])
        allowed = mxnet.sym.broadcast_greater_equal(
            mxnet.sym.reshape(mxnet.sym.tile(places, reps=(group,)), shape=(1, -1, 1)),
            mxnet.sym.reshape(places, shape=(1, 1, -1)),
        )
        scores = mxnet.sym.broadcast_add(scores, (allowed - 1.0) * _NEVER)
    return mxnet.sym.softmax(scores, axis=-1)


KINDS: Dict[str, Callable[..., Any]] = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _activation,
    "tanh": _activation,
    "sigmoid": _activation,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": _global_avg_pool,
    "lrn": _lrn,
    "dropout": _dropout,
    "flatten": _flatten,
    "add": _add,
    "concat": _concat,
    "tokens": _tokens,
    "embedding": _embedding,
    "unembedding": _unembedding,
    "class_token": _class_token,
    "positions": _positions,
    "segment": _segment,
    "first_token": _first_token,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "swiglu": _swiglu,
    "gelu": _gelu,
    "attention": _attention,
}


def _softmax_cross_entropy(outputs: Any, _: Any, label_smoothing: float) -> Any:
    logarithms = mxnet.sym.log_softmax(outputs, axis=-1)
    losses = -mxnet.sym.pick(logarithms, mxnet.sym.Variable(TARGETS), axis=-1)
    if not label_smoothing:
        return losses
    return (1.0 - label_smoothing) * losses - label_smoothing * mxnet.sym.mean(logarithms, axis=-1)


def _mean_squared_error(outputs: Any, inputs: Any, _: Any) -> Any:
    difference = mxnet.sym.flatten(outputs) - mxnet.sym.flatten(inputs)
    return mxnet.sym.mean(mxnet.sym.square(difference), axis=1)


def _token_cross_entropy(outputs: Any, _: Any, label_smoothing: float) -> Any:
    """Return a loss of each sample, whose mean over the batch is that over all predicted tokens."""
    targets = mxnet.sym.Variable(TARGETS)
    predicted = targets >= 0
    logarithms = mxnet.sym.log_softmax(outputs, axis=-1)
    losses = -mxnet.sym.pick(logarithms, mxnet.sym.relu(targets), axis=-1)
    if label_smoothing:
        losses = (1.0 - label_smoothing) * losses - label_smoothing * mxnet.sym.mean(logarithms, axis=-1)
    # The mean of the samples' shares of the predicted tokens is one over their number.
    share = mxnet.sym.mean(mxnet.sym.sum(predicted, axis=1), axis=0)
    return mxnet.sym.broadcast_div(mxnet.sym.sum(losses * predicted, axis=1), share)


LOSSES: Dict[str, Callable[..., Any]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "mean_squared_error": _mean_squared_error,
    "next_token_cross_entropy": _token_cross_entropy,
    "masked_token_cross_entropy": _token_cross_entropy,
}
