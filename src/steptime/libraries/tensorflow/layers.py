"""Each kind of layer over ``tf.nn``, channels last.

A layer is a callable of its input tensors, made from its JSON and ``{role: variable}``. Layers that compute something
else in evaluation have a method ``evaluate``, those with running statistics their ``statistics``. Variables are
float32; with activations in bfloat16 the weights are cast where they are used, as TensorFlow's own mixed precision
does. TensorFlow 1.15 takes all but batch normalisation and the layers of transformers, of which it has none.
"""

import tensorflow as tf

from steptime.worker.weights import rotary_turns


def _window(layer):
    attributes = layer["attributes"]
    return tuple(tuple(attributes[name]) for name in ("kernel", "stride", "padding"))


def _conv2d(layer, variables):
    kernel, stride, padding = _window(layer)
    groups = layer["attributes"]["groups"]
    on_gpu = bool(tf.config.experimental.get_visible_devices("GPU"))
    pads = _named_padding(layer["input_shapes"][0][1:], kernel, stride, padding)
    edges = [[0, 0]] + [[pad, pad] for pad in padding] + [[0, 0]]
    # On a CPU the gradient of a convolution whose padding has no name leaves oneDNN for a kernel ten times slower, and
    # there is no gradient of a grouped one where oneDNN is switched off.
    pad_before = pads is None and not on_gpu
    in_parts = groups > 1 and not on_gpu

    def apply(values):
        weight = tf.cast(variables["weight"], values.dtype)
        if pad_before:
            values = tf.pad(values, edges)
        how = "VALID" if pad_before else pads or edges
        if in_parts:
            parts = zip(tf.split(values, groups, axis=-1), tf.split(weight, groups, axis=-1))
            result = tf.concat([tf.nn.conv2d(part, slice_, stride, how) for part, slice_ in parts], axis=-1)
        else:
            result = tf.nn.conv2d(values, weight, stride, how)
        return _biased(result, variables)

    return apply


def _named_padding(sizes, kernel, stride, padding):
    """Return TensorFlow's name for a padding, or None if SAME would put more zeros on one side than on the other."""
    if padding == (0, 0):
        return "VALID"
    wanted = [
        max((-(-size // step) - 1) * step + window - size, 0) for size, window, step in zip(sizes, kernel, stride)
    ]
    return "SAME" if all(total == 2 * pad for total, pad in zip(wanted, padding)) else None


def _biased(values, variables):
    if "bias" not in variables:
        return values
    return tf.nn.bias_add(values, tf.cast(variables["bias"], values.dtype))


def _linear(layer, variables):
    leading = layer["input_shapes"][0][:-1]

    def apply(values):
        if leading:  # one product of a matrix with all tokens, not one of each sequence
            values = tf.reshape(values, (-1, values.shape.as_list()[-1]))
        result = _biased(tf.matmul(values, tf.cast(variables["weight"], values.dtype)), variables)
        return tf.reshape(result, [-1] + layer["output_shape"]) if leading else result

    return apply


class _TensorFlowBatchNorm(object):
    """Batch normalisation; ``statistics`` are the running means and variances, ``{name: variable}``."""

    def __init__(self, layer, variables):
        attributes = layer["attributes"]
        features = layer["input_shapes"][0][0]
        # Each worker keeps its own, as Keras does; without a strategy these two settings mean nothing.
        alone = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.MEAN,
        }
        self._mean = tf.Variable(tf.zeros(features), name=layer["name"] + ".running_mean", **alone)
        self._variance = tf.Variable(tf.ones(features), name=layer["name"] + ".running_variance", **alone)
        self._fixed = {"scale": variables["weight"], "offset": variables["bias"], "epsilon": attributes["epsilon"]}
        self._newest = attributes["momentum"]
        self.statistics = {layer["name"] + ".mean": self._mean, layer["name"] + ".variance": self._variance}

    def __call__(self, values):
        result = self._normalised(values, exponential_avg_factor=self._newest)
        self._mean.assign(result.batch_mean)
        self._variance.assign(result.batch_variance)
        return _shaped_like(values, result.y)

    def evaluate(self, values):
        return _shaped_like(values, self._normalised(values, is_training=False).y)

    def _normalised(self, values, **how):
        flat = values.shape.rank == 2  # noqa: PLR2004 - batch, features
        images = values[:, None, None, :] if flat else values
        return tf.raw_ops.FusedBatchNormV3(
            x=images, mean=self._mean, variance=self._variance, **dict(self._fixed, **how)
        )


def _shaped_like(values, images):
    """Return ``images`` without their height and width where ``values`` have none."""
    return images[:, 0, 0, :] if values.shape.rank == 2 else images  # noqa: PLR2004 - batch, features


def _max_pool(layer, _):
    kernel, stride, padding = _window(layer)
    sizes = zip(layer["input_shapes"][0][1:], layer["output_shape"][1:], kernel, stride, padding)
    # In ceil mode the last window may extend beyond the symmetric padding; where not all is used, less is padded.
    pads = [(pad, max(0, (count - 1) * step + window - size - pad)) for size, count, window, step, pad in sizes]

    def apply(values):
        if any(pads[0] + pads[1]):
            edges = [(0, 0)] + pads + [(0, 0)]
            values = tf.pad(values, edges, constant_values=values.dtype.min)
        return tf.nn.max_pool2d(values, kernel, stride, "VALID")

    return apply


def _avg_pool(layer, _):
    kernel, stride, padding = _window(layer)

    def apply(values):
        if any(padding):  # TensorFlow's own padding would not be counted in the average
            values = tf.pad(values, [(0, 0)] + [(pad, pad) for pad in padding] + [(0, 0)])
        return tf.nn.avg_pool2d(values, kernel, stride, "VALID")

    return apply


def _lrn(layer, _):
    attributes = layer["attributes"]
    if attributes["size"] % 2 == 0:
        raise ValueError(
            "layer %r: tensorflow normalises over an odd number of channels, not %d"
            % (layer["name"], attributes["size"])
        )

    def apply(values):
        result = tf.nn.local_response_normalization(
            tf.cast(values, tf.float32),
            depth_radius=(attributes["size"] - 1) // 2,
            bias=attributes["k"],
            alpha=attributes["alpha"] / attributes["size"],
            beta=attributes["beta"],
        )
        return tf.cast(result, values.dtype)

    return apply


class _TensorFlowDropout(object):
    """Drops values in training."""

    def __init__(self, layer, _):
        self._rate = layer["attributes"]["rate"]

    def __call__(self, values):
        return tf.nn.dropout(values, rate=self._rate) if self._rate else tf.identity(values)

    evaluate = staticmethod(tf.identity)


def _flatten(layer, _):
    size = 1
    for length in layer["input_shapes"][0]:
        size *= length
    return lambda values: tf.reshape(values, (-1, size))


def _global_avg_pool(*_):
    return lambda values: tf.reduce_mean(values, axis=(1, 2), keepdims=True)


def _add(*_):
    return lambda *values: tf.add(*values) if len(values) == 2 else tf.add_n(values)  # noqa: PLR2004 - a pair


def _concat(*_):
    return lambda *values: tf.concat(values, axis=-1)


def _tokens(layer, _):
    shape = [-1] + layer["output_shape"]
    return lambda images: tf.reshape(images, shape)


def _embedding(_, variables):
    @tf.custom_gradient
    def gathered(numbers, weight):
        def gradient(slope):
            # Dense, as the gradient of an unembedding is, to which it is added; TensorFlow's own has rows only.
            flat = tf.reshape(slope, (-1, weight.shape[-1]))
            return None, tf.math.unsorted_segment_sum(flat, tf.reshape(numbers, [-1]), weight.shape[0])

        return tf.gather(weight, numbers), gradient

    return lambda numbers: gathered(numbers, tf.convert_to_tensor(variables["weight"]))


def _unembedding(layer, variables):
    def apply(values):
        rows = tf.reshape(values, (-1, values.shape.as_list()[-1]))
        scores = _biased(tf.matmul(rows, tf.cast(variables["weight"], values.dtype), transpose_b=True), variables)
        return tf.reshape(scores, [-1] + layer["output_shape"])

    return apply


def _class_token(_, variables):
    def apply(values):
        weight = tf.cast(variables["weight"], values.dtype)
        batch, _, features = values.shape.as_list()
        return tf.concat([tf.broadcast_to(weight, (batch, 1, features)), values], axis=1)

    return apply


def _positions(_, variables):
    return lambda values: values + tf.cast(variables["weight"], values.dtype)


def _segment(_, variables):
    return lambda values: values + tf.cast(variables["weight"], values.dtype)[:1]


def _first_token(*_):
    return lambda values: values[:, 0]


def _layer_norm(layer, variables):
    epsilon = layer["attributes"]["epsilon"]

    def apply(values):
        exact = tf.cast(values, tf.float32)
        result = tf.keras.ops.layer_normalization(exact, variables["weight"], variables["bias"], epsilon=epsilon)
        return tf.cast(result, values.dtype)

    return apply


def _rms_norm(layer, variables):
    epsilon = layer["attributes"]["epsilon"]
    return lambda values: tf.keras.ops.rms_normalization(values, variables["weight"], epsilon=epsilon)


def _swiglu(values):
    gates, contents = tf.split(values, 2, axis=-1)
    return tf.nn.silu(gates) * contents


def _gelu(layer, _):
    approximate = layer["attributes"]["approximate"]
    return lambda values: tf.nn.gelu(values, approximate=approximate)


def _attention(layer, _):
    tokens, features = layer["output_shape"]
    heads, causal = layer["attributes"]["heads"], layer["attributes"]["causal"]
    shared = layer["attributes"].get("key_value_heads", heads)
    turns = rotary_turns(layer)

    def apply(values):
        rows = tf.reshape(values, (-1, tokens, heads + 2 * shared, features // heads))
        if turns:
            turned, contents = tf.split(rows, [heads + shared, shared], axis=2)
            queries, keys = tf.split(_turned(turned, *turns), [heads, shared], axis=2)
        else:
            queries, keys, contents = tf.split(rows, [heads, shared, shared], axis=2)
        if shared != heads:  # as Keras's own layer of grouped queries does
            keys, contents = (tf.repeat(each, heads // shared, axis=2) for each in (keys, contents))
        joined = tf.keras.ops.dot_product_attention(queries, keys, contents, is_causal=causal)
        return tf.reshape(joined, (-1, tokens, features))

    return apply


def _turned(heads, cosines, sines):
    """Return queries and keys (batch, tokens, heads, features) turned by the angles of their places."""
    cosines, sines = (tf.constant(each[:, None], heads.dtype) for each in (cosines, sines))
    first, second = tf.split(heads, 2, axis=-1)
    return tf.concat([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


LAYERS = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _TensorFlowBatchNorm,
    "relu": lambda *_: tf.nn.relu,
    "tanh": lambda *_: tf.tanh,
    "sigmoid": lambda *_: tf.sigmoid,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": _global_avg_pool,
    "lrn": _lrn,
    "dropout": _TensorFlowDropout,
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
    "swiglu": lambda *_: _swiglu,
    "gelu": _gelu,
    "attention": _attention,
}


def softmax_cross_entropy(outputs, targets, smoothing=0.0):
    """Mean over the batch; of ``targets``, class indices, the share ``smoothing`` is spread over all classes."""
    if smoothing:
        classes = outputs.shape.as_list()[-1]
        shares = tf.one_hot(targets, classes, 1.0 - smoothing + smoothing / classes, smoothing / classes)
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=shares, logits=outputs))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=outputs))


def mean_squared_error(outputs, targets):
    """Mean over all elements."""
    return tf.reduce_mean(tf.math.squared_difference(outputs, targets))


def token_cross_entropy(outputs, targets, smoothing=0.0):
    """Mean over all tokens whose target is not negative; ``outputs`` are (batch, tokens, classes)."""
    predicted = tf.reshape(targets >= 0, [-1])
    rows = tf.reshape(outputs, (-1, outputs.shape.as_list()[-1]))
    wanted = tf.reshape(tf.maximum(targets, 0), [-1])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=rows)
    if smoothing:
        losses = (1.0 - smoothing) * losses - smoothing * tf.reduce_mean(tf.nn.log_softmax(rows), axis=-1)
    kept = tf.cast(predicted, losses.dtype)
    return tf.reduce_sum(losses * kept) / tf.reduce_sum(kept)


LOSSES = {
    "softmax_cross_entropy": softmax_cross_entropy,
    "mean_squared_error": mean_squared_error,
    "next_token_cross_entropy": token_cross_entropy,
    "masked_token_cross_entropy": token_cross_entropy,
}
