"""Workloads as Chainer links and functions."""

from typing import Any, Dict

import chainer
import chainer.functions as F  # noqa: N812 - the name that every user of Chainer gives it
import chainer.links as L  # noqa: N812
import numpy
from chainer.backends import cuda

from steptime.worker.samples import IGNORED, TOKEN_LOSSES
from steptime.worker.weights import rotary_turns

_NEVER = 1e30
"""By which a score is less that must get no share."""


def _conv2d(layer):
    attributes, shape = layer["attributes"], layer["input_shapes"][0]
    return L.Convolution2D(
        shape[0],
        attributes["out_channels"],
        tuple(attributes["kernel"]),
        stride=tuple(attributes["stride"]),
        pad=tuple(attributes["padding"]),
        nobias=not attributes["bias"],
        initialW=0,  # real values follow; drawing random ones first takes seconds where there are many
        groups=attributes["groups"],
    )


class _LinearLink(L.Linear):
    """A linear layer that takes sequences too."""

    def forward(self, x):
        return super(_LinearLink, self).forward(x, n_batch_axes=x.ndim - 1)


def _linear(layer):
    attributes = layer["attributes"]
    return _LinearLink(
        layer["input_shapes"][0][-1], attributes["out_features"], nobias=not attributes["bias"], initialW=0
    )


def _batch_norm(layer):
    attributes = layer["attributes"]
    # Chainer names the weight of the past, the workload that of the newest batch.
    return L.BatchNormalization(
        layer["input_shapes"][0][0], decay=1.0 - attributes["momentum"], eps=attributes["epsilon"]
    )


def _max_pool(layer):
    attributes = layer["attributes"]
    kernel, stride, padding = (tuple(attributes[name]) for name in ("kernel", "stride", "padding"))
    ceil_mode = attributes["ceil_mode"]
    height, width = layer["output_shape"][1:]
    counts = [
        (size + 2 * pad - window + step - 1) // step + 1
        for size, window, step, pad in zip(layer["input_shapes"][0][1:], kernel, stride, padding)
    ]
    # Chainer also keeps a last window that lies in the padding altogether, which the workload drops.
    surplus = ceil_mode and counts != [height, width]

    def call(x):
        y = F.max_pooling_2d(x, kernel, stride=stride, pad=padding, cover_all=ceil_mode)
        return y[:, :, :height, :width] if surplus else y

    return call


def _avg_pool(layer):
    attributes = layer["attributes"]
    kernel, stride, padding = (tuple(attributes[name]) for name in ("kernel", "stride", "padding"))
    return lambda x: F.average_pooling_2d(x, kernel, stride=stride, pad=padding)


def _global_avg_pool(_):
    # Several times faster on the CPU than a pooling function, which copies its windows out first.
    return lambda x: F.mean(x, axis=(2, 3), keepdims=True)


def _lrn(layer):
    attributes = layer["attributes"]
    size = attributes["size"]
    # Chainer's alpha multiplies the plain sum of squares.
    alpha, beta, k = attributes["alpha"] / size, attributes["beta"], attributes["k"]
    return lambda x: F.local_response_normalization(x, n=size, k=k, alpha=alpha, beta=beta)


def _dropout(layer):
    rate = layer["attributes"]["rate"]
    return (lambda x: F.dropout(x, rate)) if rate else (lambda x: x)


def _flatten(layer):
    size = layer["output_shape"][0]
    return lambda x: F.reshape(x, (-1, size))


def _add(_):
    return lambda first, *others: sum(others, first)


def _concat(_):
    return lambda *values: F.concat(values, axis=1)


def _tokens(layer):
    tokens, features = layer["output_shape"]
    return lambda images: F.transpose(F.reshape(images, (-1, features, tokens)), (0, 2, 1))


class _TableLink(chainer.Link):
    """Trained vectors of tokens: ``W`` (tokens, features)."""

    def __init__(self, layer):
        super(_TableLink, self).__init__()
        with self.init_scope():
            self.W = chainer.Parameter(0, layer["parameters"][0]["shape"])


class _EmbedLink(L.EmbedID):
    """An embedding; it begins with zeros, which real values follow."""

    def __init__(self, layer):
        vocabulary, features = layer["parameters"][0]["shape"]
        super(_EmbedLink, self).__init__(vocabulary, features, initialW=0)


class _UnembeddingLink(chainer.Link):
    """A score for each token of the vocabulary, by the weight of ``embedding``, a link."""

    def __init__(self, layer, embedding):
        super(_UnembeddingLink, self).__init__()
        self._embedding = [embedding]  # in a list, lest it becomes a child of this link
        with self.init_scope():
            self.b = chainer.Parameter(0, layer["attributes"]["vocabulary"]) if layer["attributes"]["bias"] else None

    def forward(self, values):
        return F.linear(values, self._embedding[0].W, self.b, n_batch_axes=2)


class _ClassTokenLink(_TableLink):
    """A trained token before those of each sequence."""

    def forward(self, values):
        first = F.broadcast_to(self.W[None], (len(values), 1, values.shape[-1]))
        return F.concat([first, values], axis=1)


class _PositionsLink(_TableLink):
    """A trained vector for each place, added to the token there."""

    def forward(self, values):
        return values + F.broadcast_to(self.W[None], values.shape)


class _SegmentLink(_TableLink):
    """The first of the trained vectors, added to each token."""

    def forward(self, values):
        return values + F.broadcast_to(self.W[:1], values.shape)


class _LayerNormLink(L.LayerNormalization):
    """Layer normalisation of each token; Chainer's own takes a matrix."""

    def forward(self, values):
        rows = F.reshape(values, (-1, values.shape[-1]))
        return F.reshape(super(_LayerNormLink, self).forward(rows), values.shape)


class _RmsNormLink(_TableLink):
    """Each token over the root of its mean square, scaled by ``W`` (features,)."""

    def __init__(self, layer):
        super(_RmsNormLink, self).__init__(layer)
        self._epsilon = layer["attributes"]["epsilon"]

    def forward(self, values):
        inverse = F.rsqrt(F.mean(values * values, axis=-1, keepdims=True) + self._epsilon)
        return values * F.broadcast_to(inverse, values.shape) * F.broadcast_to(self.W, values.shape)


def _swiglu(values):
    gates, contents = F.split_axis(values, 2, axis=-1)
    return gates * F.sigmoid(gates) * contents


def _gelu(layer):
    if layer["attributes"]["approximate"]:
        return lambda x: 0.5 * x * (1.0 + F.tanh((2 / numpy.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    return lambda x: 0.5 * x * (1.0 + F.erf(x * 0.5**0.5))


def _attention(layer):
    tokens, features = layer["output_shape"]
    heads, causal = layer["attributes"]["heads"], layer["attributes"]["causal"]
    shared = layer["attributes"].get("key_value_heads", heads)
    group, width = heads // shared, features // heads
    turns = [each.astype(numpy.float32) for each in rotary_turns(layer) or ()]
    hidden = numpy.tile(numpy.triu(numpy.full((tokens, tokens), -_NEVER, dtype=numpy.float32), 1), (group, 1))

    def call(values):
        rows = F.transpose(F.reshape(values, (-1, tokens, heads + 2 * shared, width)), (0, 2, 1, 3))
        if turns:
            turned, contents = F.split_axis(rows, [heads + shared], axis=1)
            queries, keys = F.split_axis(_turned(turned, *turns), [heads], axis=1)
        else:
            queries, keys, contents = F.split_axis(rows, [heads, heads + shared], axis=1)
        # The heads that share keys lie behind each other, as if they were more tokens.
        queries = F.reshape(queries * width**-0.5, (-1, shared, group * tokens, width))
        scores = F.matmul(queries, keys, transb=True)
        if causal:
            scores += chainer.backend.get_array_module(scores).asarray(hidden)
        joined = F.matmul(F.softmax(scores, axis=3), contents)
        joined = F.reshape(joined, (-1, heads, tokens, width))
        return F.reshape(F.transpose(joined, (0, 2, 1, 3)), (-1, tokens, features))

    return call


def _turned(heads, cosines, sines):
    """Return queries and keys (batch, heads, tokens, features) turned by the angles of their places."""
    own = chainer.backend.get_array_module(heads)
    cosines, sines = own.asarray(cosines), own.asarray(sines)
    first, second = F.split_axis(heads, 2, axis=-1)
    return F.concat([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


_KINDS = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": lambda _: F.relu,
    "tanh": lambda _: F.tanh,
    "sigmoid": lambda _: F.sigmoid,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": _global_avg_pool,
    "lrn": _lrn,
    "dropout": _dropout,
    "flatten": _flatten,
    "add": _add,
    "concat": _concat,
    "tokens": _tokens,
    "embedding": _EmbedLink,
    "class_token": _ClassTokenLink,
    "positions": _PositionsLink,
    "segment": _SegmentLink,
    "first_token": lambda _: lambda values: values[:, 0],
    "layer_norm": lambda layer: _LayerNormLink(layer["output_shape"][-1], eps=layer["attributes"]["epsilon"]),
    "rms_norm": _RmsNormLink,
    "swiglu": lambda _: _swiglu,
    "gelu": _gelu,
    "attention": _attention,
}
_SCALED = {"weight": "gamma", "bias": "beta"}
_ATTRIBUTES = {"batch_norm": _SCALED, "layer_norm": _SCALED}
_USUAL_ATTRIBUTES = {"weight": "W", "bias": "b"}


class WorkloadChain(chainer.ChainList):
    """A workload's layers as one link, whose call gives the loss of a batch.

    ``inputs`` are float32 (batch, …) in the workload's layout. ``targets`` are int32 class indices, or for a
    mean-squared-error workload an array of the inputs' size in any shape. ``label_smoothing`` is the share of a target
    that is spread evenly over all classes.
    """

    def __init__(self, workload, label_smoothing=0.0):
        super(WorkloadChain, self).__init__()
        self.output_shape: Any = None
        """Shape of the last batch's output."""
        self._parameters = {}
        self._plan = []
        self._squared = workload["loss"] == "mean_squared_error"
        self._of_tokens = workload["loss"] in TOKEN_LOSSES
        self._smoothed = bool(label_smoothing) and not self._squared
        if self._smoothed:
            # The target of each class; as a persistent value it follows the link to its device.
            classes = workload["classes"]
            smoothed = (1.0 - label_smoothing) * numpy.eye(classes) + label_smoothing / classes
            self.add_persistent("targets", smoothed.astype(numpy.float32))
        layers = workload["layers"]
        slots = {"input": 0}
        links: Dict[str, Any] = {}
        last_use = {name: index for index, layer in enumerate(layers) for name in layer["inputs"]}
        for index, layer in enumerate(layers):
            if layer["kind"] == "unembedding":
                call = _UnembeddingLink(layer, links[layer["attributes"]["embedding"]])
            else:
                call = links[layer["name"]] = _KINDS[layer["kind"]](layer)
            if layer["parameters"]:
                self.add_link(call)
                attributes = _ATTRIBUTES.get(layer["kind"], _USUAL_ATTRIBUTES)
                for parameter in layer["parameters"]:
                    self._parameters[parameter["name"]] = getattr(call, attributes[parameter["role"]])
            sources = [slots[name] for name in layer["inputs"]]
            dead = sorted({slots[name] for name in layer["inputs"] if last_use[name] == index})
            slots[layer["name"]] = index + 1
            self._plan.append((call, sources, dead, index + 1))

    def forward(self, inputs, targets):
        outputs = self.outputs(inputs)
        self.output_shape = outputs.shape
        if self._squared:
            return F.mean_squared_error(outputs, targets.reshape(outputs.shape))
        if self._of_tokens:
            outputs, targets = F.reshape(outputs, (-1, outputs.shape[-1])), targets.reshape(-1)
        if self._smoothed:
            return self._smoothed_cross_entropy(outputs, targets)
        return F.softmax_cross_entropy(outputs, targets, ignore_label=IGNORED)

    def _smoothed_cross_entropy(self, outputs, targets):
        if not self._of_tokens:
            return F.softmax_cross_entropy(outputs, self.targets[targets])
        predicted = targets != IGNORED
        losses = F.softmax_cross_entropy(outputs, self.targets[targets * predicted], reduce="no")
        return F.sum(losses * predicted) / int(predicted.sum())

    def outputs(self, inputs):
        """Return the last layer's output for a batch."""
        values = [inputs] + [None] * len(self._plan)
        for call, sources, dead, slot in self._plan:
            value = call(*[values[source] for source in sources])
            for source in dead:  # what backward does not need is free from here on
                values[source] = None
            values[slot] = value
        return values[-1]

    def named(self):
        """Return pairs of a name of the workload and Chainer's parameter."""
        return list(self._parameters.items())

    def make_numpy_gradients(self):
        """Turn iDeep's gradients into numpy's: MPI would sum a copy of those that have a layout of iDeep's own."""
        for parameter in self._parameters.values():
            if not isinstance(parameter.grad, numpy.ndarray):
                parameter.grad = numpy.array(parameter.grad)

    def get_weights(self):
        """Return ``{name: array}`` of all trainable values, as numpy copies in the workload's layout."""
        return {name: cuda.to_cpu(value.array).copy() for name, value in self._parameters.items()}

    def set_weights(self, weights):
        """Take all trainable values from ``{name: array}``; to be called before the link moves to a device."""
        for name, value in self._parameters.items():
            value.array[...] = numpy.asarray(weights[name], dtype=numpy.float32)
