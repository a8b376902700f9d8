"""A chain of layers in numpy: the loss of a batch, and the gradients of all weights in one vector."""

import numpy

_ACTIVATIONS = {
    "relu": (lambda x: numpy.maximum(x, 0.0), lambda y: y > 0.0),
    "sigmoid": (lambda x: 1.0 / (1.0 + numpy.exp(-x)), lambda y: y * (1.0 - y)),
    "tanh": (numpy.tanh, lambda y: 1.0 - y * y),
}
"""By kind: the function, and its derivative as a function of the output."""
KINDS = sorted(["flatten", "linear"] + list(_ACTIVATIONS))


class Network(object):
    """The layers of a workload's JSON, batch first.

    ``weights``
        ``{name: array}``: views into one vector of all values, ``values``, in the order of the forward pass.
    ``gradients``
        The same of the gradients, which lie in ``slopes``.

    Raises ValueError for a workload that is not a chain of layers of ``KINDS`` below a softmax cross-entropy.
    """

    def __init__(self, workload, initial, label_smoothing=0.0):
        """Take a workload's JSON, ``{name: array}`` of weights, and the share of a target that all classes share."""
        self._layers = workload["layers"]
        self._require_chain(workload)
        classes = workload["classes"]
        targets = (1.0 - label_smoothing) * numpy.eye(classes) + label_smoothing / classes
        self._targets = targets.astype(numpy.float32)
        size = sum(array.size for array in initial.values())
        self.values = numpy.zeros(size, dtype=numpy.float32)
        self.slopes = numpy.zeros(size, dtype=numpy.float32)
        self.weights = _views(self.values, initial)
        self.gradients = _views(self.slopes, initial)
        for name, array in initial.items():
            self.weights[name][...] = array

    def _require_chain(self, workload):
        source = "input"
        for layer in self._layers:
            if layer["kind"] not in KINDS or layer["inputs"] != [source]:
                raise ValueError(
                    "numpy_ring trains chains of %s, and %r is a layer of kind %r behind %s; choose the workload "
                    "tiny_mlp or mlp" % (", ".join(KINDS), layer["name"], layer["kind"], ", ".join(layer["inputs"]))
                )
            source = layer["name"]
        if workload["loss"] != "softmax_cross_entropy":
            raise ValueError("numpy_ring has no loss %r" % workload["loss"])

    def outputs(self, inputs):
        """Return ``inputs`` and every layer's output."""
        outputs = [inputs]
        for layer in self._layers:
            x = outputs[-1]
            if layer["kind"] == "linear":
                y = x @ self.weights[layer["name"] + ".weight"].T
                bias = self.weights.get(layer["name"] + ".bias")
                outputs.append(y if bias is None else y + bias)
            elif layer["kind"] == "flatten":
                outputs.append(x.reshape(len(x), -1))
            else:
                outputs.append(_ACTIVATIONS[layer["kind"]][0](x))
        return outputs

    def forward(self, inputs, targets):
        """Return ``(loss, outputs, slope)``: the mean loss, every layer's output, and the loss's slope in the last."""
        outputs = self.outputs(inputs)
        scores = outputs[-1] - outputs[-1].max(axis=1, keepdims=True)
        logarithms = scores - numpy.log(numpy.exp(scores).sum(axis=1, keepdims=True))
        wanted = self._targets[targets]
        loss = -(wanted * logarithms).sum() / len(targets)
        return float(loss), outputs, (numpy.exp(logarithms) - wanted) / len(targets)

    def backward(self, outputs, slope):
        """Leave the gradients of the mean loss in ``slopes``, from what ``forward`` returned."""
        for position in reversed(range(len(self._layers))):
            layer, x = self._layers[position], outputs[position]
            if layer["kind"] == "linear":
                numpy.matmul(slope.T, x, out=self.gradients[layer["name"] + ".weight"])
                if layer["name"] + ".bias" in self.gradients:
                    slope.sum(axis=0, out=self.gradients[layer["name"] + ".bias"])
                slope = slope @ self.weights[layer["name"] + ".weight"] if position else slope
            elif layer["kind"] == "flatten":
                slope = slope.reshape(x.shape)
            else:
                slope = slope * _ACTIVATIONS[layer["kind"]][1](outputs[position + 1])


def _views(vector, shaped):
    """Return ``{name: view}`` of neighbouring parts of ``vector``, with the shapes of the arrays of ``shaped``."""
    views, start = {}, 0
    for name, array in shaped.items():
        views[name] = vector[start : start + array.size].reshape(array.shape)
        start += array.size
    return views
