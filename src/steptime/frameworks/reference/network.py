"""Workloads in plain numpy: no automatic differentiation, no parallelism, nothing that hides what is computed."""

from typing import Any, Dict, Set

import numpy

from steptime.frameworks.reference import layers, transformers, windows
from steptime.frameworks.reference.layers import RoundedLayer

LOSSES = {
    "softmax_cross_entropy": layers.softmax_cross_entropy,
    "mean_squared_error": layers.mean_squared_error,
    "next_token_cross_entropy": transformers.token_cross_entropy,
    "masked_token_cross_entropy": transformers.token_cross_entropy,
}
LAYERS = {
    "conv2d": windows.Conv2d,
    "linear": layers.Linear,
    "batch_norm": layers.BatchNorm,
    "relu": layers.Relu,
    "tanh": layers.Tanh,
    "sigmoid": layers.Sigmoid,
    "max_pool": windows.MaxPool,
    "avg_pool": windows.AvgPool,
    "global_avg_pool": layers.GlobalAvgPool,
    "lrn": layers.LocalResponseNorm,
    "dropout": layers.Dropout,
    "flatten": layers.Flatten,
    "add": layers.Add,
    "concat": layers.Concat,
    "tokens": transformers.Tokens,
    "embedding": transformers.Embedding,
    "unembedding": transformers.Unembedding,
    "class_token": transformers.ClassToken,
    "positions": transformers.Positions,
    "segment": transformers.Segment,
    "first_token": transformers.FirstToken,
    "layer_norm": transformers.LayerNorm,
    "rms_norm": transformers.RmsNorm,
    "gelu": transformers.Gelu,
    "swiglu": transformers.SwiGlu,
    "attention": transformers.Attention,
}
_ROUNDED = ("conv2d", "linear", "unembedding", "attention")
"""Kinds that compute in bf16 under automatic mixed precision."""


class ReferenceNetwork(object):
    """A workload's layers with their weights and gradients.

    ``values`` and ``slopes`` are flat vectors of all weights and all gradients; ``weights`` and ``gradients`` are
    views into them by name, so that an update or an exchange treats one vector and not hundreds of arrays. ``arrays``
    has of each array its slice of the vectors and its number of axes.
    """

    def __init__(self, workload, dtype=numpy.float32, rounded=False, smoothing=0.0):
        """Take a workload's JSON; weights start at zero until ``set_weights`` is called.

        With ``rounded``, products compute in bf16, as under automatic mixed precision. ``smoothing`` is that
        of the labels in the loss.
        """
        self._smoothing = smoothing
        self._workload = workload
        self._rounded = rounded
        parameters = [parameter for layer in workload["layers"] for parameter in layer["parameters"]]
        count = sum(_size(parameter["shape"]) for parameter in parameters)
        self.dtype = numpy.dtype(dtype)
        self.values = numpy.zeros(count, dtype=dtype)
        self.slopes = numpy.zeros(count, dtype=dtype)
        self.weights = _views(self.values, parameters)
        self.arrays = _slices(parameters)
        self.gradients = _views(self.slopes, parameters)
        self._layers = self._build()
        self._last_uses = {name: layer["name"] for layer in workload["layers"] for name in layer["inputs"]}

    def set_weights(self, weights):
        """Copy ``{name: array}`` into the network; every parameter must be there."""
        for name, view in self.weights.items():
            view[...] = weights[name]

    def set_mask_stream(self, stream):
        """Draw the masks of all dropout layers from ``stream``, a ``numpy.random.RandomState``."""
        for layer in self._layers.values():
            layer.stream = stream

    def batch(self, inputs, targets):
        """Return a batch in the network's own layout and type.

        Class indices stay as they are, as do the numbers of tokens; values that are targets take the shape of the
        output.
        """
        if self._workload["loss"] == "mean_squared_error":
            targets = targets.reshape((len(targets),) + self.output_shape)
        return self._own(inputs), targets if targets.ndim == 1 else self._own(targets)

    def parts(self, inputs, targets, count):
        """Return so many equal parts of a batch that ``batch`` returned."""
        axis = min(targets.ndim - 1, 1)
        return [
            (numpy.ascontiguousarray(own), numpy.ascontiguousarray(wanted))
            for own, wanted in zip(numpy.split(inputs, count, axis=1), numpy.split(targets, count, axis=axis))
        ]

    def _own(self, array):
        dtype = array.dtype if array.dtype.kind == "i" else self.dtype
        return numpy.ascontiguousarray(numpy.moveaxis(array, 0, 1), dtype=dtype)

    @property
    def output_shape(self):
        """Shape of the output per sample."""
        return tuple(self._workload["layers"][-1]["output_shape"])

    def forward(self, inputs):
        """Return the output for ``inputs``, both in the network's own layout."""
        return self._output(inputs, lambda layer: layer.forward)

    def evaluate(self, inputs):
        """Return the output in evaluation, both with the batch first: float32, channels first."""
        output = self._output(self._own(inputs), lambda layer: layer.evaluate)
        return numpy.ascontiguousarray(numpy.moveaxis(output, 1, 0), dtype=numpy.float32)

    def state(self):
        """Return ``{name: array}`` of what evaluation needs and training changes, apart from weights; not copied."""
        return {
            "%s/%s" % (layer, name): array
            for layer, built in self._layers.items()
            for name, array in built.state().items()
        }

    def _output(self, inputs, method_of):
        values = {"input": inputs}
        for layer in self._workload["layers"]:
            name = layer["name"]
            values[name] = method_of(self._layers[name])(*[values[source] for source in layer["inputs"]])
            for source in layer["inputs"]:
                if self._last_uses[source] == name:
                    values.pop(source, None)
        return values[self._workload["layers"][-1]["name"]]

    def loss(self, inputs, targets):
        """Return the loss; gradients stay as they are."""
        return self._loss_and_slope(inputs, targets)[0]

    def backpropagate(self, inputs, targets):
        """Return the loss and overwrite all gradients; arguments are as ``batch`` returns them."""
        loss, slope = self._loss_and_slope(inputs, targets)
        slopes = {self._workload["layers"][-1]["name"]: slope}
        for layer in reversed(self._workload["layers"]):
            slope = slopes.pop(layer["name"], None)
            if slope is None:
                continue
            for source, part in zip(layer["inputs"], self._layers[layer["name"]].backward(slope)):
                if source in self._trained:
                    slopes[source] = slopes[source] + part if source in slopes else part
        return loss

    def _loss_and_slope(self, inputs, targets):
        return LOSSES[self._workload["loss"]](self.forward(inputs), targets, self._smoothing)

    def _build(self):
        # A gradient is wanted only where something trained lies before: not for the input itself.
        self._trained: Set[Any] = set()
        layers: Dict[str, Any] = {}
        for layer in self._workload["layers"]:
            before = any(source in self._trained for source in layer["inputs"])
            if before or layer["parameters"]:
                self._trained.add(layer["name"])
            names = {parameter["role"]: parameter["name"] for parameter in layer["parameters"]}
            if layer["kind"] == "unembedding":  # whose gradient is there before that of the embedding
                names["weight"] = layer["attributes"]["embedding"] + ".weight"
                layers[layer["attributes"]["embedding"]].tied = True
            built = LAYERS[layer["kind"]](
                layer,
                {role: self.weights[name] for role, name in names.items()},
                {role: self.gradients[name] for role, name in names.items()},
                before,
            )
            rounds = self._rounded and layer["kind"] in _ROUNDED
            layers[layer["name"]] = RoundedLayer(built) if rounds else built
        return layers


def _size(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def _slices(parameters):
    slices, start = [], 0
    for parameter in parameters:
        end = start + _size(parameter["shape"])
        slices.append((slice(start, end), len(parameter["shape"])))
        start = end
    return slices


def _views(vector, parameters):
    views, start = {}, 0
    for parameter in parameters:
        end = start + _size(parameter["shape"])
        views[parameter["name"]] = vector[start:end].reshape(parameter["shape"])
        start = end
    return views
