"""A workload as a layer of Paddle, whose sublayers are called in the order of the workload."""

from typing import Any, Dict

import numpy
import paddle
from paddle import nn
from paddle.nn import functional

from steptime.worker.samples import TOKEN_LOSSES
from steptime.worker.weights import rotary_turns


class WorkloadLayer(nn.Layer):
    """The network of a workload; called with inputs, it gives outputs.

    The parameters of a layer of the workload are those of the sublayer of its name. Paddle keeps the weight of a linear
    layer as (in, out); they enter and leave in the workload's layout.
    """

    def __init__(self, workload):
        """Build from a workload's JSON; weights are Paddle's own until ``load`` is called."""
        super(WorkloadLayer, self).__init__()
        layers = workload["layers"]
        last_use = {name: place for place, layer in enumerate(layers) for name in layer["inputs"]}
        self._named: Dict[str, Any] = {}
        self._transposed, self._plan = set(), []
        for place, layer in enumerate(layers):
            if layer["kind"] == "unembedding":
                call = _PaddleUnembedding(layer, self._named[layer["attributes"]["embedding"] + ".weight"])
            else:
                call = _KINDS[layer["kind"]](layer)
            if isinstance(call, nn.Layer):
                self.add_sublayer("layer%d" % place, call)
            for parameter in layer["parameters"]:
                self._named[parameter["name"]] = getattr(call, parameter["role"])
                if layer["kind"] == "linear" and parameter["role"] == "weight":
                    self._transposed.add(parameter["name"])
            dead = [name for name in set(layer["inputs"]) if last_use[name] == place]
            self._plan.append((call, layer["inputs"], dead, layer["name"]))

    def forward(self, inputs):
        values = {"input": inputs}
        for call, sources, dead, name in self._plan:
            value = call(*[values[source] for source in sources])
            for source in dead:  # what the backward pass does not need is free from here on
                del values[source]
            values[name] = value
        return value

    def load(self, weights):
        """Take all parameters from ``{name: array}``."""
        for name, parameter in self._named.items():
            array = weights[name].T if name in self._transposed else weights[name]
            parameter.set_value(numpy.ascontiguousarray(array))

    def weights(self):
        """Return ``{name: array}`` of all parameters."""
        arrays = {name: parameter.numpy() for name, parameter in self._named.items()}
        return {name: array.T if name in self._transposed else array for name, array in arrays.items()}


def loss_of(workload, label_smoothing):
    """Return a workload's loss as a function of outputs and targets."""
    if workload["loss"] == "mean_squared_error":
        return lambda outputs, targets: functional.mse_loss(outputs, targets.reshape(outputs.shape))
    if workload["loss"] in TOKEN_LOSSES:
        return lambda outputs, targets: _token_cross_entropy(outputs, targets, label_smoothing)
    return lambda outputs, targets: functional.cross_entropy(outputs, targets, label_smoothing=label_smoothing)


def _token_cross_entropy(outputs, targets, smoothing):
    predicted = (targets >= 0).astype(outputs.dtype)
    losses = functional.cross_entropy(outputs, targets.clip(min=0), reduction="none").squeeze(-1)
    if smoothing:
        losses = (1.0 - smoothing) * losses - smoothing * functional.log_softmax(outputs).mean(-1)
    return (losses * predicted).sum() / predicted.sum()


def _conv2d(layer):
    settings = layer["attributes"]
    return nn.Conv2D(
        layer["input_shapes"][0][0],
        settings["out_channels"],
        settings["kernel"],
        stride=settings["stride"],
        padding=settings["padding"],
        groups=settings["groups"],
        bias_attr=None if settings["bias"] else False,
    )


def _linear(layer):
    settings = layer["attributes"]
    bias = None if settings["bias"] else False
    return nn.Linear(layer["input_shapes"][0][-1], settings["out_features"], bias_attr=bias)


def _batch_norm(layer):
    shape, settings = layer["input_shapes"][0], layer["attributes"]
    kind = nn.BatchNorm2D if len(shape) > 1 else nn.BatchNorm1D
    # Paddle's momentum is the weight of the past, the workload's that of the newest batch.
    return kind(shape[0], momentum=1.0 - settings["momentum"], epsilon=settings["epsilon"])


def _max_pool(layer):
    settings, (height, width) = layer["attributes"], layer["output_shape"][1:]
    kernel, stride, padding = settings["kernel"], settings["stride"], settings["padding"]
    ceil_mode = settings["ceil_mode"]

    def call(x):
        y = functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode)
        # In ceil mode Paddle keeps a last window that lies in the padding altogether, which the workload drops.
        return y if y.shape[2:] == [height, width] else y[:, :, :height, :width]

    return call


def _avg_pool(layer):
    settings = layer["attributes"]
    kernel, stride, padding = settings["kernel"], settings["stride"], settings["padding"]
    return lambda x: functional.avg_pool2d(x, kernel, stride, padding, exclusive=False)


def _lrn(layer):
    settings = layer["attributes"]
    return nn.LocalResponseNorm(settings["size"], settings["alpha"], settings["beta"], settings["k"])


def _sum(first, *others):
    return sum(others, first)


class _PaddleTable(nn.Layer):
    """Trained vectors of tokens: ``weight`` (tokens, features)."""

    def __init__(self, layer):
        super(_PaddleTable, self).__init__()
        self.weight = self.create_parameter(layer["parameters"][0]["shape"])


class _PaddleUnembedding(nn.Layer):
    """A score for each token of the vocabulary, by the ``weight`` of an embedding."""

    def __init__(self, layer, weight):
        super(_PaddleUnembedding, self).__init__()
        self._weight = [weight]  # in a list: it is the embedding's
        attributes = layer["attributes"]
        self.bias = self.create_parameter([attributes["vocabulary"]], is_bias=True) if attributes["bias"] else None

    def forward(self, values):
        scores = paddle.matmul(values, self._weight[0], transpose_y=True)
        return scores if self.bias is None else scores + self.bias.astype(scores.dtype)


class _PaddleClassToken(_PaddleTable):
    """A trained token before those of each sequence."""

    def forward(self, values):
        first = self.weight.astype(values.dtype).expand([values.shape[0], -1, -1])
        return paddle.concat([first, values], axis=1)


class _PaddleSegment(_PaddleTable):
    """The first of the trained vectors, added to each token."""

    def forward(self, values):
        return values + self.weight[0].astype(values.dtype)


class _PaddlePositions(_PaddleTable):
    """A trained vector for each place, added to the token there."""

    def forward(self, values):
        return values + self.weight.astype(values.dtype)


class _PaddleRmsNorm(_PaddleTable):
    """Each token over the root of its mean square, scaled; Paddle's own has no kernel for processors."""

    def __init__(self, layer):
        super(_PaddleRmsNorm, self).__init__(layer)
        self._epsilon = layer["attributes"]["epsilon"]

    def forward(self, values):
        exact = values.astype("float32")
        exact *= paddle.rsqrt(exact.square().mean(-1, keepdim=True) + self._epsilon)
        return (exact * self.weight).astype(values.dtype)


def _attention(layer):
    heads, causal = layer["attributes"]["heads"], layer["attributes"]["causal"]
    shared = layer["attributes"].get("key_value_heads", heads)
    tokens, features = layer["output_shape"]
    turns = [paddle.to_tensor(each[:, None].astype(numpy.float32)) for each in rotary_turns(layer) or ()]

    def call(values):
        rows = values.reshape([-1, tokens, heads + 2 * shared, features // heads])
        if turns:
            turned, contents = rows.split([heads + shared, shared], 2)
            queries, keys = _turned(turned, *turns).split([heads, shared], 2)
        else:
            queries, keys, contents = rows.split([heads, shared, shared], 2)
        joined = functional.scaled_dot_product_attention(queries, keys, contents, is_causal=causal)
        return joined.reshape([-1, tokens, features])

    return call


def _turned(heads, cosines, sines):
    """Return queries and keys (batch, tokens, heads, features) turned by the angles of their places."""
    cosines, sines = cosines.astype(heads.dtype), sines.astype(heads.dtype)
    first, second = heads.chunk(2, -1)
    return paddle.concat([first * cosines - second * sines, second * cosines + first * sines], -1)


_KINDS = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": lambda _: functional.relu,
    "tanh": lambda _: functional.tanh,
    "sigmoid": lambda _: functional.sigmoid,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": lambda _: nn.AdaptiveAvgPool2D(1),
    "lrn": _lrn,
    "dropout": lambda layer: nn.Dropout(layer["attributes"]["rate"]),
    "flatten": lambda _: nn.Flatten(),
    "add": lambda _: _sum,
    "concat": lambda _: lambda *values: paddle.concat(values, axis=1),
    "tokens": lambda _: lambda images: images.flatten(2).transpose([0, 2, 1]),
    "embedding": lambda layer: nn.Embedding(*layer["parameters"][0]["shape"]),
    "class_token": _PaddleClassToken,
    "positions": _PaddlePositions,
    "segment": _PaddleSegment,
    "first_token": lambda _: lambda values: values[:, 0],
    "layer_norm": lambda layer: nn.LayerNorm(layer["output_shape"][-1], epsilon=layer["attributes"]["epsilon"]),
    "rms_norm": _PaddleRmsNorm,
    "swiglu": lambda _: functional.swiglu,
    "gelu": lambda layer: nn.GELU(layer["attributes"]["approximate"]),
    "attention": _attention,
}
