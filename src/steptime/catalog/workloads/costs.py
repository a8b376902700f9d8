"""What a workload costs, from its layers alone: arithmetic, values, bytes, and the memory of a worker.

FLOPs are counted as follows, per sample:

- a convolution or linear layer: two per multiply-accumulate, and one per output for a bias;
- the gradient of its weights takes as many multiply-accumulates again, and so does that of its input, which is not
  computed where nothing before the layer is trained;
- attention: two per multiply-accumulate of queries by keys and of scores by values, those of its softmax and of rotary
  positions, and twice as many backward; a causal one is counted whole, as is usual, though half of its scores are zero;
- any other layer: the operations per value of ``_FLOPS``, forward and again backward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from steptime.catalog.workloads.layers import INPUT, Layer, Workload

_WEIGHT_BYTES = 4
"""Weights, gradients and momentum are kept in fp32 whatever the precision of the computation."""


@dataclass(frozen=True)
class LayerCost:
    """One layer's share; everything but parameters and their gradients is per sample."""

    name: str
    kind: str
    parameters: int
    multiply_accumulates: int
    """Of the forward matrix product; 0 for layers without one."""
    forward_flops: int
    backward_flops: int
    activation_bytes: int
    """Of the output."""
    gradient_bytes: int
    """Of the parameters' gradients: what a synchronous step exchanges."""
    least_flops: int
    """Of products, forward and backward, that no algorithm in use can do without: a convolution by Winograd's or by
    Fourier's transform multiplies at least once for each output and input channel (A. Lavin and S. Gray, arXiv
    1509.09308), and half of a causal attention is zero."""


@dataclass(frozen=True)
class Costs:
    """All layers' costs in the order of forward computation, and their sums."""

    layers: tuple[LayerCost, ...]

    @property
    def parameters(self) -> int:
        """Trainable values."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiply_accumulates(self) -> int:
        """Per sample, forward: the number that papers give as the size of a workload."""
        return sum(layer.multiply_accumulates for layer in self.layers)

    @property
    def model_flops(self) -> int:
        """Per sample, of a whole step: 6 for each multiply-accumulate, as MFU counts (``analysis.work``)."""
        return 6 * self.multiply_accumulates

    @property
    def least_flops(self) -> int:
        """Per sample, of a whole step."""
        return sum(layer.least_flops for layer in self.layers)

    @property
    def forward_flops(self) -> int:
        """Per sample."""
        return sum(layer.forward_flops for layer in self.layers)

    @property
    def backward_flops(self) -> int:
        """Per sample."""
        return sum(layer.backward_flops for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """Per sample: the outputs of all layers."""
        return sum(layer.activation_bytes for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        """What one worker contributes to the exchange of one step."""
        return sum(layer.gradient_bytes for layer in self.layers)


def costs(workload: Workload, dtype_bytes: int = 4) -> Costs:
    """Return the costs of every layer; ``dtype_bytes`` is the width of an activation."""
    trained: set[str] = set()
    found = []
    for layer in workload.layers:
        behind_trained = any(source in trained for source in layer.inputs)
        if behind_trained or layer.parameters:
            trained.add(layer.name)
        found.append(_layer_cost(layer, dtype_bytes, wants_input_gradient=behind_trained))
    return Costs(tuple(found))


def activation_width(precision: str) -> int:
    """Return how many bytes an activation has in a precision, of which two are of 16 bits."""
    return 2 if precision in {"bf16", "fp16"} else _WEIGHT_BYTES


def memory_bytes(workload: Workload, batch: int, *, dtype_bytes: int = 4, optimizer_values: int = 1) -> int:
    """Estimate what one worker needs to train: the least that a framework without tricks gets by with.

    Weights, their gradients and what the optimizer keeps of them; what each layer keeps for the backward pass, each
    array once although several layers may keep it; and as workspace the largest pair of gradients that are alive
    together, the output's and the inputs' of one layer; the logarithm of the softmax, which the loss keeps in 32 bits.
    In mixed precision the loss's gradient is of 32 bits too, and products take copies of the weights. A framework's own
    code and caches come on top. GPT-2 with batch 8 and sequences of 1024 in bf16: 8.31 GB, and 8.81 GB with two values
    of the optimizer, where PyTorch 2.11 had allocated 8.70 GB at its most on an H100.

    Args:
        workload: what is trained.
        batch: samples per worker.
        dtype_bytes: width of an activation.
        optimizer_values: how many values the optimizer keeps per weight.
    """
    mixed = dtype_bytes < _WEIGHT_BYTES
    state = workload.parameter_count * (_WEIGHT_BYTES * (2 + optimizer_values) + (dtype_bytes if mixed else 0))
    of_loss = prod(workload.output_shape) * _WEIGHT_BYTES * (2 if mixed else 1)
    return state + batch * (_kept_bytes(workload, dtype_bytes) + _workspace_bytes(workload, dtype_bytes) + of_loss)


def _layer_cost(layer: Layer, dtype_bytes: int, *, wants_input_gradient: bool) -> LayerCost:
    values = prod(layer.output_shape)
    parameters = sum(parameter.count for parameter in layer.parameters)
    products = _multiply_accumulates(layer)
    if layer.kind == "attention":
        forward = 2 * products + _SOFTMAX_FLOPS * layer.attributes["heads"] * layer.output_shape[0] ** 2
        if "rotary_base" in layer.attributes:
            forward += _ROTARY_FLOPS * _queries_and_keys(layer)
        backward = 2 * forward
    elif products:
        bias = values if layer.attributes.get("bias") else 0
        forward = 2 * products + bias
        backward = 2 * products * (2 if wants_input_gradient else 1) + bias
    else:
        forward = backward = _FLOPS[layer.kind](layer) * values
    return LayerCost(
        name=layer.name,
        kind=layer.kind,
        parameters=parameters,
        multiply_accumulates=products,
        forward_flops=forward,
        backward_flops=backward if wants_input_gradient or layer.parameters else 0,
        activation_bytes=values * dtype_bytes,
        gradient_bytes=parameters * _WEIGHT_BYTES,
        least_flops=2 * products * (3 if wants_input_gradient else 2) // _most_saved(layer) if products else 0,
    )


def _most_saved(layer: Layer) -> int:
    """Return by what an algorithm may divide the products of a layer at most."""
    if layer.kind == "attention":
        return 2
    return prod(layer.attributes["kernel"]) if layer.kind == "conv2d" else 1


_SOFTMAX_FLOPS = 4
"""Of each score: scaled, an exponential, a sum and a quotient."""
_ROTARY_FLOPS = 3
"""Of each value of queries and keys: two products and a sum."""


def _queries_and_keys(layer: Layer) -> int:
    """How many values of queries and keys there are: all that come in but the values, of which keys are as many."""
    own, queries = prod(layer.input_shapes[0]), prod(layer.output_shape)
    return (own + queries) // 2


def _multiply_accumulates(layer: Layer) -> int:
    if layer.kind == "attention":
        tokens = layer.output_shape[0]
        return 2 * tokens * prod(layer.output_shape)
    if layer.kind == "unembedding":
        return layer.input_shapes[0][-1] * prod(layer.output_shape)
    weight = next((parameter for parameter in layer.parameters if parameter.role == "weight"), None)
    if weight is None or layer.kind not in {"conv2d", "linear"}:
        return 0
    return prod(weight.shape[1:]) * prod(layer.output_shape)


def _each(operations: int) -> Callable[[Layer], int]:
    return lambda _: operations


def _window(layer: Layer) -> int:
    return prod(layer.attributes["kernel"])


def _whole_image(layer: Layer) -> int:
    return prod(layer.input_shapes[0][1:])


_FLOPS: Mapping[str, Callable[[Layer], int]] = {
    "batch_norm": _each(7),  # a sum; a difference, its square and their sum; a product; scale and shift
    "relu": _each(1),
    "tanh": _each(4),  # an exponential, counted as one operation, two sums and a quotient
    "sigmoid": _each(4),
    "dropout": _each(1),
    "flatten": _each(0),
    "concat": _each(0),
    "add": lambda layer: len(layer.inputs) - 1,
    "max_pool": _window,
    "avg_pool": _window,
    "global_avg_pool": _whole_image,
    "tokens": _each(0),
    "embedding": _each(0),
    "class_token": _each(0),
    "positions": _each(1),
    "segment": _each(1),
    "first_token": _each(0),
    "layer_norm": _each(7),  # as batch_norm
    "rms_norm": _each(4),  # a square and the sum; a product; scale
    "gelu": _each(5),  # an error function, counted as one operation, two products, a sum and a product
    "swiglu": _each(6),  # as sigmoid, and two products
    "lrn": lambda layer: layer.attributes["size"] + 5,  # squares, their sum, scale, offset, power, quotient
}
"""Arithmetic operations per value of the output."""

_KEPT: Mapping[str, Callable[[Layer], tuple[str, ...]]] = {
    "conv2d": lambda layer: layer.inputs,
    "linear": lambda layer: layer.inputs,
    "batch_norm": lambda layer: layer.inputs,
    "lrn": lambda layer: (*layer.inputs, layer.name),
    "max_pool": lambda layer: (*layer.inputs, layer.name),
    "relu": lambda layer: (layer.name,),
    "tanh": lambda layer: (layer.name,),
    "sigmoid": lambda layer: (layer.name,),
    "dropout": lambda layer: (layer.name,) if layer.attributes["rate"] else (),
    "concat": lambda _: (),
    "add": lambda _: (),
    "flatten": lambda _: (),
    "avg_pool": lambda _: (),
    "global_avg_pool": lambda _: (),
    "tokens": lambda _: (),
    "embedding": lambda layer: layer.inputs,
    "unembedding": lambda layer: layer.inputs,
    "class_token": lambda _: (),
    "positions": lambda _: (),
    "segment": lambda _: (),
    "first_token": lambda _: (),
    "layer_norm": lambda layer: layer.inputs,
    "rms_norm": lambda layer: layer.inputs,
    "gelu": lambda layer: layer.inputs,
    "swiglu": lambda layer: layer.inputs,
    "attention": lambda layer: (*layer.inputs, layer.name),  # scores are computed again
}
"""Whose outputs a kind of layer needs again to go back; a view counts as what it looks at."""


def _kept_bytes(workload: Workload, dtype_bytes: int) -> int:
    values: dict[str, int] = {INPUT: prod(workload.input_shape)}
    looks_at: dict[str, str] = {INPUT: INPUT}
    kept: set[str] = {INPUT}
    for layer in workload.layers:
        values[layer.name] = prod(layer.output_shape)
        is_view = layer.kind in {"flatten", "tokens"} or (layer.kind == "dropout" and not layer.attributes["rate"])
        looks_at[layer.name] = looks_at[layer.inputs[0]] if is_view else layer.name
        kept.update(looks_at[name] for name in _KEPT[layer.kind](layer))
    return dtype_bytes * sum(values[name] for name in kept)


def _workspace_bytes(workload: Workload, dtype_bytes: int) -> int:
    def alive(layer: Layer) -> int:
        return prod(layer.output_shape) + sum(prod(shape) for shape in layer.input_shapes)

    return dtype_bytes * max(alive(layer) for layer in workload.layers)
