"""Workloads as CNTK functions.

CNTK knows no padding of windows but its own: ``auto_padding`` puts the windows' centres on the input's cells, the
first on the first. If the workload has the same, it is used, because it costs nothing; elsewhere the image is
padded by a layer of its own, which copies it.
"""

import math

import cntk
import numpy


class WorkloadFunction(object):
    """A workload's layers as one CNTK function with its loss.

    ``features`` is the input variable of the workload's shape. ``labels`` is that of the one-hot targets, or None for
    a mean-squared-error workload, whose target is its input. ``output`` and ``loss`` are functions; ``loss`` has one
    value per sample.
    """

    def __init__(self, workload, weights, batch, seed):
        """Build it.

        Args:
            workload: a workload's JSON.
            weights: the start values, ``{name: array}``.
            batch: samples of this worker's steps.
            seed: of the dropout masks, another one for each worker.

        Raises ValueError, naming the layer, for what CNTK cannot express.
        """
        self._parameters = {}
        self._running = {}
        self._weights = weights
        self._batch = batch
        self._seed = seed
        self.features = cntk.input_variable(tuple(workload["input_shape"]), name="input")
        values = {"input": self.features}
        for layer in workload["layers"]:
            values[layer["name"]] = self._built(layer, [values[name] for name in layer["inputs"]])
        self.output = value = values[workload["layers"][-1]["name"]]
        shape = tuple(workload["layers"][-1]["output_shape"])
        if workload["loss"] == "mean_squared_error":
            self.labels = None
            difference = cntk.squared_error(value, cntk.reshape(self.features, shape))
            self.loss = difference * (1.0 / float(numpy.prod(shape)))
        else:
            self.labels = cntk.input_variable(shape, name="labels")
            self.loss = cntk.cross_entropy_with_softmax(value, self.labels)

    def _built(self, layer, inputs):
        try:
            value = _KINDS[layer["kind"]](self, layer, *inputs)
        except (RuntimeError, ValueError) as error:
            said = str(error).strip().splitlines()[:1]  # a call stack of C++ follows
            raise ValueError(
                "CNTK cannot build the layer %r (%s): %s" % (layer["name"], layer["kind"], "".join(said))
            ) from error
        if list(value.shape) != layer["output_shape"]:
            raise ValueError(
                "CNTK makes %s of the layer %r (%s) where the workload has %s"
                % (list(value.shape), layer["name"], layer["kind"], layer["output_shape"])
            )
        return value

    def parameter(self, layer, role, shape=None, transposed=False):
        """Return the layer's parameter of a role as CNTK's own, with its start value; None if there is none.

        Args:
            layer: of the workload.
            role: ``weight`` or ``bias``.
            shape: in which CNTK wants it; the workload's by default.
            transposed: whether CNTK wants it with its two axes exchanged.
        """
        for each in layer["parameters"]:
            if each["role"] == role:
                start = numpy.asarray(self._weights[each["name"]], dtype=numpy.float32)
                start = start.T if transposed else start.reshape(shape or start.shape)
                made = cntk.parameter(init=numpy.ascontiguousarray(start), name=each["name"].replace(".", "_"))
                self._parameters[each["name"]] = (made, tuple(each["shape"]), transposed)
                return made
        return None

    def running(self, layer, statistic, constant):
        """Return ``constant``, in which CNTK keeps a running ``statistic`` of the layer."""
        self._running["%s/%s" % (layer["name"], statistic)] = constant
        return constant

    def outputs(self, inputs):
        """Return the output for ``inputs``, both float32 arrays, with running statistics and without dropout."""
        return numpy.asarray(self.output.eval({self.features: inputs}), dtype=numpy.float32)

    def get_state(self):
        """Return all parameters and running statistics as ``{name: array}``, in CNTK's own layout."""
        return {name: numpy.array(value.value) for name, value in self._values()}

    def set_state(self, arrays):
        """Take over what ``get_state`` returned; ``arrays`` may hold more."""
        for name, value in self._values():
            value.value = arrays[name]

    def _values(self):
        """Yield a name and CNTK's object of each parameter and running statistic."""
        for name, (made, _, _) in self._parameters.items():
            yield "weight/" + name, made
        for name, constant in self._running.items():
            yield "running/" + name, constant

    @property
    def parameters(self):
        """CNTK's trainable parameters, in the workload's order."""
        return [made for made, _, _ in self._parameters.values()]

    def get_weights(self):
        """Return ``{name: array}`` of all trainable values, as numpy copies in the workload's layout."""
        weights = {}
        for name, (made, shape, transposed) in self._parameters.items():
            value = made.value.T if transposed else made.value
            weights[name] = numpy.array(value, dtype=numpy.float32).reshape(shape)
        return weights

    def time_constant(self, momentum):
        """Return after how many samples a running mean has forgotten all but 1/e, for a weight of the newest batch."""
        return -self._batch / math.log(1.0 - momentum) if momentum < 1.0 else 0.0

    def next_seed(self):
        """Return a seed that no other layer of this worker has."""
        self._seed += 1
        return self._seed


_LOWEST = -3e38
"""Below every value that a network computes: a padding that never wins."""


def _convolved(layer, x, weight):
    """Return the convolution of ``x`` with ``weight`` (out, in, height, width) as the layer describes it."""
    attributes = layer["attributes"]
    x, automatic = _padded(layer, x, 0.0)
    return cntk.convolution(
        weight,
        x,
        strides=(1,) + tuple(attributes["stride"]),
        auto_padding=[False] + automatic,
        groups=attributes["groups"],
    )


def _pooled(layer, x, kind):
    """Return the pooling of ``x`` by CNTK's ``kind`` as the layer describes it."""
    attributes = layer["attributes"]
    x, automatic = _padded(layer, x, _LOWEST if kind == cntk.MAX_POOLING else 0.0)
    return cntk.pooling(
        x,
        kind,
        tuple(attributes["kernel"]),
        tuple(attributes["stride"]),
        auto_padding=[False] + automatic,
        include_pad=True,
    )


def _padded(layer, x, value):
    """Return ``x``, padded with ``value`` if it must be, and for each axis whether CNTK shall pad it by itself."""
    attributes = layer["attributes"]
    axes = list(
        zip(
            attributes["kernel"],
            attributes["stride"],
            attributes["padding"],
            layer["input_shapes"][0][1:],
            layer["output_shape"][1:],
        )
    )
    automatic = [_is_automatic(*axis) for axis in axes]
    pattern = [(0, 0) if own else _needed(*axis) for own, axis in zip(automatic, axes)]
    if any(map(any, pattern)):
        x = cntk.pad(x, [(0, 0)] + pattern, cntk.CONSTANT_PAD, value)
    return x, automatic


def _is_automatic(kernel, stride, padding, size, count):
    """Whether CNTK's own padding of an axis is the workload's: as many windows, at the same places.

    It is refused for a window that is larger than the input, and spreads a rest of two cells or more over both ends.
    """
    centred = kernel % 2 == 1 and padding == (kernel - 1) // 2 > 0
    return centred and kernel <= size and (size - 1) % stride < 2 and (size - 1) // stride + 1 == count  # noqa: PLR2004


def _needed(kernel, stride, padding, size, count):
    """The padding in front and behind with which ``count`` windows, and no more, fit an axis."""
    return padding, max(0, (count - 1) * stride + kernel - size - padding)


def _conv2d(function, layer, x):
    value = _convolved(layer, x, function.parameter(layer, "weight"))
    bias = function.parameter(layer, "bias", (layer["attributes"]["out_channels"], 1, 1))
    return value if bias is None else value + bias


def _linear(function, layer, x):
    value = cntk.times(x, function.parameter(layer, "weight", transposed=True))
    bias = function.parameter(layer, "bias")
    return value if bias is None else value + bias


def _batch_norm(function, layer, x):
    channels = layer["input_shapes"][0][0]
    # CNTK counts in samples what the workload counts in batches, so that the momentum belongs to the batch that a step
    # sees. A count of zero would let the first batch replace what the statistics start from.
    return cntk.batch_normalization(
        x,
        function.parameter(layer, "weight"),
        function.parameter(layer, "bias"),
        function.running(layer, "mean", cntk.constant(0.0, (channels,))),
        function.running(layer, "variance", cntk.constant(1.0, (channels,))),
        spatial=len(layer["input_shapes"][0]) > 1,
        normalization_time_constant=function.time_constant(layer["attributes"]["momentum"]),
        epsilon=layer["attributes"]["epsilon"],
        running_count=function.running(layer, "count", cntk.constant(1.0)),
    )


def _lrn(_, layer, x):
    attributes = layer["attributes"]
    size = attributes["size"]
    # CNTK divides alpha by the number of neighbours too, unlike in its documentation.
    return cntk.local_response_normalization(
        x, (size - 1) // 2, attributes["k"], attributes["alpha"], attributes["beta"]
    )


def _global_avg_pool(_, layer, x):
    return cntk.pooling(x, cntk.AVG_POOLING, tuple(layer["input_shapes"][0][1:]))


def _dropout(function, layer, x):
    rate = layer["attributes"]["rate"]
    return cntk.dropout(x, rate, seed=function.next_seed()) if rate else x


def _concat(_, __, *values):
    return cntk.splice(*values, axis=0)


def _add(_, __, first, *others):
    for other in others:
        first = first + other
    return first


_KINDS = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": lambda _, __, x: cntk.relu(x),
    "tanh": lambda _, __, x: cntk.tanh(x),
    "sigmoid": lambda _, __, x: cntk.sigmoid(x),
    "max_pool": lambda _, layer, x: _pooled(layer, x, cntk.MAX_POOLING),
    "avg_pool": lambda _, layer, x: _pooled(layer, x, cntk.AVG_POOLING),
    "global_avg_pool": _global_avg_pool,
    "lrn": _lrn,
    "dropout": _dropout,
    "flatten": lambda _, layer, x: cntk.reshape(x, tuple(layer["output_shape"])),
    "add": _add,
    "concat": _concat,
}
