"""The layer graph: how a workload is written down, and the JSON that every builder reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from steptime.catalog.workloads.kinds import KINDS, Shape
from steptime.catalog.workloads.own_module import OwnModule
from steptime.errors import WorkloadError

INPUT = "input"
Loss = Literal[
    "softmax_cross_entropy", "mean_squared_error", "next_token_cross_entropy", "masked_token_cross_entropy", "own"
]
"""Of a sample's class, of its values, or of its tokens: of each the next one, or those that the input hides; or that of
a user's own module."""
Pair = int | tuple[int, int]


@dataclass(frozen=True)
class Parameter:
    """One trainable array of a layer: ``<layer>.weight`` or ``<layer>.bias``, in the canonical layout."""

    name: str
    role: str
    shape: Shape

    @property
    def count(self) -> int:
        """How many values it holds."""
        return prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One node of the graph, with every attribute spelled out and every shape resolved (per sample)."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    attributes: dict[str, Any]
    input_shapes: tuple[Shape, ...]
    output_shape: Shape
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Workload:
    """What is trained: layers in the order of forward computation, input shape, classes and loss."""

    name: str
    input_shape: Shape
    classes: int
    loss: Loss
    layers: tuple[Layer, ...]
    own: OwnModule | None = None
    """A module of the user's, of which layers and shapes are unknown here, so that there are none."""

    @property
    def parameter_count(self) -> int:
        """How many trainable values the workload has."""
        return sum(parameter.count for layer in self.layers for parameter in layer.parameters)

    @property
    def output_shape(self) -> Shape:
        """Shape of the last layer's output, per sample."""
        return self.layers[-1].output_shape if self.layers else ()

    def to_json(self, *, dropout: bool = True) -> dict[str, Any]:
        """The form that crosses to the worker.

        Args:
            dropout: False sets every dropout rate to 0, which the equivalence check needs.
        """
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "classes": self.classes,
            "loss": self.loss,
            "layers": [_layer_to_json(layer, dropout=dropout) for layer in self.layers],
            **({"own": {**self.own.model_dump(mode="json"), "dropout": dropout}} if self.own else {}),
        }


class Network:
    """The pen with which a workload is written: each method adds one layer and returns its name.

    A method's first argument names the layer, the second its input (``Network.input`` or a name returned before).
    """

    input = INPUT

    def __init__(self, input_shape: Shape) -> None:
        self._input_shape = input_shape
        self._shapes: dict[str, Shape] = {INPUT: input_shape}
        self._layers: list[Layer] = []

    def shape(self, name: str) -> Shape:
        """Shape of a layer's output, per sample."""
        return self._shapes[name]

    def conv2d(  # noqa: PLR0913 - a convolution has this many numbers
        self,
        name: str,
        source: str,
        out_channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> str:
        """Convolve with ``out_channels`` filters; padding is symmetric and with zeros."""
        attributes = {"out_channels": out_channels, **_sizes(kernel, stride, padding), "groups": groups, "bias": bias}
        return self._add(name, "conv2d", (source,), attributes)

    def linear(
        self, name: str, source: str, out_features: int, *, bias: bool = True, initial_scale: float = 1.0
    ) -> str:
        """Multiply a flat input, or each token of a sequence, by a matrix.

        Args:
            name: of the layer.
            source: its input.
            out_features: of the output.
            bias: whether one is added.
            initial_scale: by what the matrix is multiplied before training.
        """
        scale = {} if initial_scale == 1.0 else {"initial_scale": initial_scale}
        return self._add(name, "linear", (source,), {"out_features": out_features, "bias": bias, **scale})

    def batch_norm(
        self, name: str, source: str, *, epsilon: float = 1e-5, momentum: float = 0.1, initial_scale: float = 1.0
    ) -> str:
        """Normalise over batch and space.

        Args:
            name: of the layer.
            source: its input.
            epsilon: added to the variance.
            momentum: weight of the newest batch in the running mean.
            initial_scale: what the trained scale starts from.
        """
        attributes = {"epsilon": epsilon, "momentum": momentum, "initial_scale": initial_scale}
        return self._add(name, "batch_norm", (source,), attributes)

    def relu(self, name: str, source: str) -> str:
        """max(0, x)."""
        return self._add(name, "relu", (source,), {})

    def tanh(self, name: str, source: str) -> str:
        """Hyperbolic tangent."""
        return self._add(name, "tanh", (source,), {})

    def sigmoid(self, name: str, source: str) -> str:
        """1 / (1 + exp(-x))."""
        return self._add(name, "sigmoid", (source,), {})

    def max_pool(  # noqa: PLR0913 - a window has this many numbers
        self, name: str, source: str, kernel: Pair, *, stride: Pair, padding: Pair = 0, ceil_mode: bool = False
    ) -> str:
        """Take the largest value of each window; padding never wins."""
        attributes = {**_sizes(kernel, stride, padding), "ceil_mode": ceil_mode}
        return self._add(name, "max_pool", (source,), attributes)

    def avg_pool(self, name: str, source: str, kernel: Pair, *, stride: Pair, padding: Pair = 0) -> str:
        """Average each window; padding counts as zeros in the average."""
        attributes = {**_sizes(kernel, stride, padding), "ceil_mode": False}
        return self._add(name, "avg_pool", (source,), attributes)

    def global_avg_pool(self, name: str, source: str) -> str:
        """Average over height and width, which become 1."""
        return self._add(name, "global_avg_pool", (source,), {})

    def lrn(  # noqa: PLR0913 - the formula has this many numbers
        self, name: str, source: str, *, size: int, alpha: float, beta: float, k: float
    ) -> str:
        """Divide by (k + alpha/size * sum of squares of ``size`` neighbouring channels) ** beta (AlexNet 2012)."""
        return self._add(name, "lrn", (source,), {"size": size, "alpha": alpha, "beta": beta, "k": k})

    def dropout(self, name: str, source: str, rate: float) -> str:
        """Zero a share of ``rate`` of the values and scale up the rest."""
        return self._add(name, "dropout", (source,), {"rate": rate})

    def flatten(self, name: str, source: str) -> str:
        """Make one axis of channels, height, width, in this order."""
        return self._add(name, "flatten", (source,), {})

    def add(self, name: str, sources: Sequence[str]) -> str:
        """Add inputs of one shape."""
        return self._add(name, "add", tuple(sources), {})

    def concat(self, name: str, sources: Sequence[str]) -> str:
        """Join inputs along the channels."""
        return self._add(name, "concat", tuple(sources), {})

    def tokens(self, name: str, source: str) -> str:
        """Make a sequence of an image: one token of all channels for each pixel, row by row."""
        return self._add(name, "tokens", (source,), {})

    def class_token(self, name: str, source: str) -> str:
        """Put a trained token before a sequence."""
        return self._add(name, "class_token", (source,), {})

    def embedding(self, name: str, source: str, vocabulary: int, features: int) -> str:
        """Take a trained vector for each token of the input, which are numbers from 0 to ``vocabulary`` - 1."""
        return self._add(name, "embedding", (source,), {"vocabulary": vocabulary, "features": features})

    def unembedding(self, name: str, source: str, embedding: str, *, bias: bool = False) -> str:
        """Multiply each token by the vectors of ``embedding``, a layer: a score for each token of its vocabulary.

        Its weight is that layer's own, its bias is not.
        """
        tied = next(layer for layer in self._layers if layer.name == embedding).attributes
        if self._shapes[source][-1:] != (tied["features"],):
            message = f"layer {name!r}: {embedding!r} has {tied['features']} features, and {source!r} others"
            raise WorkloadError(message)
        attributes = {"embedding": embedding, "vocabulary": tied["vocabulary"], "bias": bias}
        return self._add(name, "unembedding", (source,), attributes)

    def positions(self, name: str, source: str) -> str:
        """Add a trained vector to each token, another one for each place."""
        return self._add(name, "positions", (source,), {})

    def segment(self, name: str, source: str, segments: int) -> str:
        """Add the first of so many trained vectors to each token, as where all are of the first segment."""
        return self._add(name, "segment", (source,), {"segments": segments})

    def first_token(self, name: str, source: str) -> str:
        """Take the first token of a sequence."""
        return self._add(name, "first_token", (source,), {})

    def layer_norm(self, name: str, source: str, *, epsilon: float = 1e-5) -> str:
        """Normalise each token over its features; ``epsilon`` is added to the variance."""
        return self._add(name, "layer_norm", (source,), {"epsilon": epsilon})

    def rms_norm(self, name: str, source: str, *, epsilon: float = 1e-5) -> str:
        """Divide each token by the root of its mean square; ``epsilon`` is added to that (Zhang, Sennrich 2019)."""
        return self._add(name, "rms_norm", (source,), {"epsilon": epsilon})

    def gelu(self, name: str, source: str, *, approximate: bool = False) -> str:
        """Multiply x by the probability that a normal variable is below x.

        By the error function, or with ``approximate`` as (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
        """
        return self._add(name, "gelu", (source,), {"approximate": approximate})

    def swiglu(self, name: str, source: str) -> str:
        """Multiply the second half of each token's features by g sigmoid(g), g the first half (Shazeer 2020)."""
        return self._add(name, "swiglu", (source,), {})

    def attention(  # noqa: PLR0913 - attention has this many numbers
        self,
        name: str,
        source: str,
        heads: int,
        *,
        causal: bool = False,
        key_value_heads: int | None = None,
        rotary_base: float | None = None,
    ) -> str:
        """Attend from every token to all: softmax(queries · keys / sqrt(features of a head)) · values, of each head.

        Args:
            name: of the layer.
            source: a sequence whose features are all heads' queries, then all keys, then all values.
            heads: how many; head i has the i-th part of each.
            causal: whether a token attends to itself and those before it only.
            key_value_heads: how many heads of keys and values there are, each for as many heads of queries in a row
                (Ainslie et al. 2023); ``heads`` by default.
            rotary_base: where given, features i and i + d / 2 of the d of each query and key are turned as a point of
                a plane by place · rotary_base^(-2 i / d) (Su et al. 2021; paired as in the published Llama).
        """
        attributes: dict[str, Any] = {"heads": heads, "causal": causal}
        if key_value_heads not in {None, heads}:
            attributes["key_value_heads"] = key_value_heads
        if rotary_base is not None:
            attributes["rotary_base"] = rotary_base
        return self._add(name, "attention", (source,), attributes)

    def finish(self, name: str, *, classes: int, loss: Loss = "softmax_cross_entropy") -> Workload:
        """Return the workload; its output is the layer added last."""
        return Workload(name, self._input_shape, classes, loss, tuple(self._layers))

    def _add(self, name: str, kind: str, inputs: tuple[str, ...], attributes: dict[str, Any]) -> str:
        if name in self._shapes:
            message = f"two layers are named {name!r}"
            raise WorkloadError(message)
        shape_rule, parameter_rule = KINDS[kind]
        shapes = tuple(self._shapes[source] for source in inputs)
        try:
            output_shape = shape_rule(shapes, attributes)
        except WorkloadError as error:
            message = f"layer {name!r} ({kind}): {error}"
            raise WorkloadError(message) from error
        parameters = tuple(
            Parameter(f"{name}.{role}", role, shape) for role, shape in parameter_rule(shapes, attributes).items()
        )
        self._layers.append(Layer(name, kind, inputs, attributes, shapes, output_shape, parameters))
        self._shapes[name] = output_shape
        return name


def _sizes(kernel: Pair, stride: Pair, padding: Pair) -> dict[str, list[int]]:
    return {"kernel": _pair(kernel), "stride": _pair(stride), "padding": _pair(padding)}


def _pair(value: Pair) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _layer_to_json(layer: Layer, *, dropout: bool) -> dict[str, Any]:
    attributes = dict(layer.attributes)
    if layer.kind == "dropout" and not dropout:
        attributes["rate"] = 0.0
    return {
        "name": layer.name,
        "kind": layer.kind,
        "inputs": list(layer.inputs),
        "attributes": attributes,
        "input_shapes": [list(shape) for shape in layer.input_shapes],
        "output_shape": list(layer.output_shape),
        "parameters": [
            {"name": parameter.name, "role": parameter.role, "shape": list(parameter.shape)}
            for parameter in layer.parameters
        ],
    }
