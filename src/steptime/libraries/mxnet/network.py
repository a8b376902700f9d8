"""A workload as an MXNet symbol bound to memory: the static graph that MXNet 1 runs fastest.

MXNet reads its environment (``OMP_NUM_THREADS`` among others) once, when this module imports it; ``startup.py`` sets
the variables before.
"""

import math
from typing import Any, Dict, Sequence, Tuple

import mxnet

from steptime.worker.samples import TOKEN_LOSSES

_INPUT = "input"
_TARGETS = "targets"
_NEVER = 1e30
"""By which a score is less that must get no share."""


class BoundWorkload(object):
    """A workload's symbol with all its arrays: inputs, weights, gradients, and what lies between.

    ``weights`` and ``gradients`` are ``{name: NDArray}`` in the order of the layers, under the names and in the
    layout of the workload's JSON, which MXNet shares. Weights are zero until ``set_weights``.

    ``gradients`` are those of the *sum* of the losses over the batch: MXNet's optimizers rescale by the batch.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one per fact
        self,
        workload: Dict[str, Any],
        batch: int,
        mx_device: Any,
        label_smoothing: float = 0.0,
        loss_scale: float = 1.0,
        accumulation: int = 1,
    ) -> None:
        """Plan the memory of one batch, or of one of its equal parts, once for all steps.

        Args:
            workload: its JSON.
            batch: samples per step.
            mx_device: MXNet's device.
            label_smoothing: share of the target that is spread evenly over all classes.
            loss_scale: by what gradients are multiplied.
            accumulation: equal parts of a batch whose gradients are added up.

        Raises ValueError for a layer or a loss that this builder does not know, and ``mxnet.MXNetError`` where
        MXNet finds other shapes than the workload's.
        """
        self._part, self._parts, self._losses = batch // accumulation, accumulation, None
        shapes = {_INPUT: (self._part,) + tuple(workload["input_shape"])}
        if workload["loss"] != "mean_squared_error":  # there the target is the input itself
            tokens = tuple(workload["input_shape"]) if workload["loss"] in TOKEN_LOSSES else ()
            shapes[_TARGETS] = (self._part,) + tokens
        losses, outputs = _symbols(workload, label_smoothing)
        symbol = mxnet.sym.Group([mxnet.sym.MakeLoss(losses, grad_scale=loss_scale), mxnet.sym.BlockGrad(outputs)])
        names = [parameter["name"] for layer in workload["layers"] for parameter in layer["parameters"]]
        how = "write" if accumulation == 1 else "add"
        self._executor = symbol.simple_bind(mx_device, grad_req=dict.fromkeys(names, how), **shapes)
        self._mx_device, self._outputs, self._input_shape = mx_device, outputs, (batch,) + shapes[_INPUT][1:]
        self._given = [self._executor.arg_dict[name] for name in shapes]
        self.weights = {name: self._executor.arg_dict[name] for name in names}
        self.gradients = {name: self._executor.grad_dict[name] for name in names}
        for name, array in self._executor.aux_dict.items():
            array[:] = 1.0 if name.endswith("_moving_var") else 0.0

    @property
    def running(self) -> Dict[str, Any]:
        """The running statistics of batch normalisation, ``{name: NDArray}``."""
        return self._executor.aux_dict

    @property
    def losses(self) -> Any:
        """One loss per sample of the last batch; their mean is the loss of the protocol."""
        return self._executor.outputs[0] if self._parts == 1 else self._losses

    @property
    def outputs(self) -> Any:
        """The output of the last layer, of a part of the batch where it has several."""
        return self._executor.outputs[1]

    def propagate(self, inputs: Any, targets: Any) -> None:
        """Start the forward pass of one batch of NDArrays, as in training; MXNet's engine finishes it later."""
        for own, given in zip(self._given, (inputs, targets)):
            given.copyto(own)
        self._executor.forward(is_train=True)

    def backpropagate(self, inputs: Any, targets: Any) -> None:
        """Start forward and backward of one batch of NDArrays; MXNet's engine finishes them later."""
        if self._parts > 1:
            self._gather(inputs, targets)
            return
        self.propagate(inputs, targets)
        self._executor.backward()

    def _gather(self, inputs: Any, targets: Any) -> None:
        """Add up the gradients of the parts of a batch, and keep their losses."""
        for gradient in self.gradients.values():
            gradient[:] = 0
        losses = []
        for start in range(0, self._part * self._parts, self._part):
            part = slice(start, start + self._part)
            self.propagate(inputs[part], targets[part])
            self._executor.backward()
            losses.append(self._executor.outputs[0].copy())
        self._losses = mxnet.nd.concat(*losses, dim=0)

    def set_weights(self, values: Any) -> None:
        """Copy ``{name: float32 array}`` into the weights."""
        for name, array in self.weights.items():
            array[:] = values[name]

    def evaluation(self, weights: Dict[str, Any]) -> "Evaluation":
        """Return an ``Evaluation`` of the network with ``{name: NDArray}`` as weights, and its running statistics."""
        return Evaluation(self._outputs, self._mx_device, self._input_shape, weights, self.running)

    def parameter_count(self) -> int:
        """Return how many values have a gradient, counted in MXNet's arrays."""
        return sum(array.size for array in self._executor.grad_dict.values() if array is not None)


class Evaluation(object):
    """The forward pass of a workload as it is used: running statistics and no dropout, with the weights of one moment.

    The weights are copies: for inference, MXNet's operators may turn weights into a layout of their own where they lie,
    and keep those that they saw first, so that every evaluation needs a binding of its own.
    """

    def __init__(
        self, symbol: Any, mx_device: Any, input_shape: Sequence[int], weights: Dict[str, Any], running: Dict[str, Any]
    ) -> None:
        """Bind ``symbol``, that of the output, to copies of ``weights`` and to the ``running`` statistics."""
        self._inputs = mxnet.nd.empty(input_shape, ctx=mx_device)
        arguments = {name: array.copy() for name, array in weights.items()}
        arguments[_INPUT] = self._inputs
        self._executor = symbol.bind(mx_device, arguments, grad_req="null", aux_states=running)

    def outputs(self, inputs: Any) -> Any:
        """Return the output for ``inputs``, a batch, both float32 numpy arrays."""
        self._inputs[:] = inputs
        return self._executor.forward(is_train=False)[0].asnumpy().astype("float32", copy=False)


def _symbols(workload: Dict[str, Any], label_smoothing: float) -> Tuple[Any, Any]:
    """Return the symbols of the losses, one per sample, and of the output."""
    values = {_INPUT: mxnet.sym.Variable(_INPUT)}
    for layer in workload["layers"]:
        make = _entry(_KINDS, layer["kind"], "layer of the kind")
        inputs = list(layer["inputs"])
        if layer["kind"] == "embedding":
            inputs.append(layer["parameters"][0]["name"])
            values[inputs[-1]] = mxnet.sym.Variable(inputs[-1])
        elif layer["kind"] == "unembedding":
            inputs.append(layer["attributes"]["embedding"] + ".weight")
        values[layer["name"]] = make(layer, *[values[source] for source in inputs])
    outputs = values[workload["layers"][-1]["name"]]
    return _entry(_LOSSES, workload["loss"], "loss")(outputs, values[_INPUT], label_smoothing), outputs


def _entry(table: Dict[str, Any], key: str, what: str) -> Any:
    if key not in table:
        raise ValueError("mxnet: there is no %s %r, only %s" % (what, key, ", ".join(sorted(table))))
    return table[key]


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


def _gelu(layer: Dict[str, Any], source: Any) -> Any:
    if layer["attributes"]["approximate"]:
        inner = (2 / math.pi) ** 0.5 * (source + 0.044715 * source * source * source)
        return 0.5 * source * (1.0 + mxnet.sym.tanh(inner))
    return mxnet.sym.LeakyReLU(source, act_type="gelu", name=layer["name"])


def _attention(layer: Dict[str, Any], source: Any) -> Any:
    """MXNet's own products want the batch second, and queries, keys and values of a head next to each other."""
    heads = layer["attributes"]["heads"]
    tokens, features = layer["output_shape"]
    parts = mxnet.sym.reshape(source, shape=(-1, tokens, 3, heads, features // heads))
    mixed = mxnet.sym.reshape(mxnet.sym.transpose(parts, axes=(1, 0, 3, 2, 4)), shape=(tokens, -1, 3 * features))
    scores = mxnet.sym.contrib.interleaved_matmul_selfatt_qk(mixed, heads=heads)
    if layer["attributes"]["causal"]:
        places = mxnet.sym.arange(tokens)
        allowed = mxnet.sym.broadcast_greater_equal(
            mxnet.sym.reshape(places, shape=(1, -1, 1)), mxnet.sym.reshape(places, shape=(1, 1, -1))
        )
        scores = mxnet.sym.broadcast_add(scores, (allowed - 1.0) * _NEVER)
    shares = mxnet.sym.softmax(scores, axis=-1)
    joined = mxnet.sym.contrib.interleaved_matmul_selfatt_valatt(mixed, shares, heads=heads)
    return mxnet.sym.transpose(joined, axes=(1, 0, 2), name=layer["name"])


_KINDS = {
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
    "gelu": _gelu,
    "attention": _attention,
}


def _softmax_cross_entropy(outputs: Any, _: Any, label_smoothing: float) -> Any:
    logarithms = mxnet.sym.log_softmax(outputs, axis=-1)
    losses = -mxnet.sym.pick(logarithms, mxnet.sym.Variable(_TARGETS), axis=-1)
    if not label_smoothing:
        return losses
    return (1.0 - label_smoothing) * losses - label_smoothing * mxnet.sym.mean(logarithms, axis=-1)


def _mean_squared_error(outputs: Any, inputs: Any, _: Any) -> Any:
    difference = mxnet.sym.flatten(outputs) - mxnet.sym.flatten(inputs)
    return mxnet.sym.mean(mxnet.sym.square(difference), axis=1)


def _token_cross_entropy(outputs: Any, _: Any, label_smoothing: float) -> Any:
    """Return a loss of each sample, whose mean over the batch is that over all predicted tokens."""
    targets = mxnet.sym.Variable(_TARGETS)
    predicted = targets >= 0
    logarithms = mxnet.sym.log_softmax(outputs, axis=-1)
    losses = -mxnet.sym.pick(logarithms, mxnet.sym.relu(targets), axis=-1)
    if label_smoothing:
        losses = (1.0 - label_smoothing) * losses - label_smoothing * mxnet.sym.mean(logarithms, axis=-1)
    # The mean of the samples' shares of the predicted tokens is one over their number.
    share = mxnet.sym.mean(mxnet.sym.sum(predicted, axis=1), axis=0)
    return mxnet.sym.broadcast_div(mxnet.sym.sum(losses * predicted, axis=1), share)


_LOSSES = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "mean_squared_error": _mean_squared_error,
    "next_token_cross_entropy": _token_cross_entropy,
    "masked_token_cross_entropy": _token_cross_entropy,
}
