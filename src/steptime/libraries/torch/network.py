"""A workload as torch modules: a ``nn.Sequential`` of segments, each a layer or a traced block of layers."""

import operator
import re
from typing import Any, Callable, Dict, List

import numpy
import torch
from torch import fx, nn
from torch.nn import functional

from steptime.worker.weights import rotary_turns

# Layers whose backward needs their input but not their output, which may therefore be overwritten.
_OVERWRITABLE = ("conv2d", "linear", "batch_norm", "add", "concat")

_WIDE_CHANNELS = 16


def prefers_channels_last(workload: Dict[str, Any]) -> bool:
    """Whether the workload's convolutions run faster with the channels of images innermost in memory.

    They do from about 16 channels on, a vector register's worth of floats; thinner ones lose, as measured on a CPU
    (ResNet-50 and GoogLeNet need 0.7 of the time, LeNet-5 1.15 times the time). The typical layer decides.
    """
    channels = sorted(layer["input_shapes"][0][0] for layer in workload["layers"] if layer["kind"] == "conv2d")
    return bool(channels) and channels[len(channels) // 2] >= _WIDE_CHANNELS


class TorchWorkload(object):
    """The network of a workload.

    ``module``
        The ``nn.Sequential`` to train. Its children are the segments between the points where a single tensor
        carries everything forward, so a residual block is one child.
    ``layers``
        The ``nn.Module`` of every layer that has one, by the layer's name.
    """

    def __init__(self, workload: Dict[str, Any]) -> None:
        """Build from a workload's JSON; weights are torch's own until ``load`` is called."""
        self._parameters = [
            (parameter["name"], layer["name"], parameter["role"])
            for layer in workload["layers"]
            for parameter in layer["parameters"]
        ]
        consumers = _consumers(workload["layers"])
        self.layers = {}
        for layer in workload["layers"]:
            if layer["kind"] in _MODULES:
                self.layers[layer["name"]] = _MODULES[layer["kind"]](layer, _may_overwrite(layer, consumers, workload))
        for layer in workload["layers"]:
            if layer["kind"] == "unembedding":
                self.layers[layer["name"]].weight = self.layers[layer["attributes"]["embedding"]].weight
        segments = [self._segment(segment, consumers, workload) for segment in _segments(workload["layers"])]
        self.module = nn.Sequential(*segments)

    def parameters(self) -> Dict[str, Any]:
        """Return ``{name: nn.Parameter}`` under the workload's names, in the order of the layers."""
        return {name: getattr(self.layers[layer], role) for name, layer, role in self._parameters}

    def load(self, weights: Dict[str, Any]) -> None:
        """Copy ``{name: array}`` into the parameters; shapes must agree."""
        with torch.no_grad():
            for name, parameter in self.parameters().items():
                parameter.copy_(torch.from_numpy(numpy.ascontiguousarray(weights[name])))

    def _segment(self, segment: List[Dict[str, Any]], consumers: Dict[str, List[int]], workload: Dict[str, Any]) -> Any:
        """One layer is its own module; several become a block whose forward is generated as straight code."""
        if len(segment) == 1 and segment[0]["kind"] in _MODULES:
            return self.layers[segment[0]["name"]]
        graph = fx.Graph()
        inside = {layer["name"] for layer in segment}
        source = next(name for layer in segment for name in layer["inputs"] if name not in inside)
        values = {source: graph.placeholder("x")}
        modules = {}
        for index, layer in enumerate(segment):
            inputs = [values[name] for name in layer["inputs"]]
            if layer["kind"] in _MODULES:
                # Names become attributes: they must be identifiers, no words of Python, and all different.
                path = "layer%d_%s" % (index, re.sub(r"\W", "_", layer["name"]))
                modules[path] = self.layers[layer["name"]]
                values[layer["name"]] = graph.call_module(path, tuple(inputs))
            elif layer["kind"] == "concat":
                values[layer["name"]] = graph.call_function(torch.cat, (inputs, 1))
            else:
                values[layer["name"]] = _sum(graph, inputs, _may_overwrite(layer, consumers, workload))
        graph.output(values[segment[-1]["name"]])
        return fx.GraphModule(modules, graph, class_name="Block")


def _sum(graph: Any, inputs: Any, overwrite: bool) -> Any:
    total = inputs[0]
    for index, term in enumerate(inputs[1:]):
        add = operator.iadd if overwrite or index > 0 else operator.add
        total = graph.call_function(add, (total, term))
    return total


def _consumers(layers: List[Dict[str, Any]]) -> Dict[str, List[int]]:
    """Return ``{name: indices of the layers that read it}``."""
    consumers: Dict[Any, Any] = {}
    for index, layer in enumerate(layers):
        for name in layer["inputs"]:
            consumers.setdefault(name, []).append(index)
    return consumers


def _may_overwrite(layer: Dict[str, Any], consumers: Dict[str, List[int]], workload: Dict[str, Any]) -> bool:
    """Whether neither another layer nor the backward pass needs what the layer's first input holds."""
    name = layer["inputs"][0]
    kinds = {each["name"]: each["kind"] for each in workload["layers"]}
    return len(consumers[name]) == 1 and kinds.get(name) in _OVERWRITABLE


def _segments(layers: List[Dict[str, Any]]) -> List[List[Dict[str, Any]]]:
    """Cut the layers wherever only the newest value is read later."""
    consumers = _consumers(layers)
    segments: List[List[Dict[str, Any]]] = []
    current: List[Dict[str, Any]] = []
    live = {"input"}
    for index, layer in enumerate(layers):
        current.append(layer)
        live.add(layer["name"])
        live = {name for name in live if consumers.get(name, [-1])[-1] > index}
        if live <= {layer["name"]}:
            segments.append(current)
            current = []
    return segments


def _conv2d(layer: Dict[str, Any], _: Any) -> Any:
    settings = layer["attributes"]
    return nn.Conv2d(
        layer["input_shapes"][0][0],
        settings["out_channels"],
        settings["kernel"],
        stride=settings["stride"],
        padding=settings["padding"],
        groups=settings["groups"],
        bias=settings["bias"],
    )


def _linear(layer: Dict[str, Any], _: Any) -> Any:
    settings = layer["attributes"]
    return nn.Linear(layer["input_shapes"][0][-1], settings["out_features"], bias=settings["bias"])


def _batch_norm(layer: Dict[str, Any], _: Any) -> Any:
    shape, settings = layer["input_shapes"][0], layer["attributes"]
    kind = nn.BatchNorm2d if len(shape) > 1 else nn.BatchNorm1d
    return kind(shape[0], eps=settings["epsilon"], momentum=settings["momentum"])


def _max_pool(layer: Dict[str, Any], _: Any) -> Any:
    settings = layer["attributes"]
    return nn.MaxPool2d(
        settings["kernel"], stride=settings["stride"], padding=settings["padding"], ceil_mode=settings["ceil_mode"]
    )


def _avg_pool(layer: Dict[str, Any], _: Any) -> Any:
    settings = layer["attributes"]
    return nn.AvgPool2d(
        settings["kernel"], stride=settings["stride"], padding=settings["padding"], count_include_pad=True
    )


def _lrn(layer: Dict[str, Any], _: Any) -> Any:
    settings = layer["attributes"]
    return nn.LocalResponseNorm(settings["size"], alpha=settings["alpha"], beta=settings["beta"], k=settings["k"])


class _TorchTokens(nn.Module):
    """The pixels of images as sequences (batch, tokens, features)."""

    def forward(self, images: Any) -> Any:
        return images.flatten(2).transpose(1, 2)


class _TorchFirstToken(nn.Module):
    """The first token of each sequence."""

    def forward(self, values: Any) -> Any:
        return values[:, 0]


class _TorchTable(nn.Module):
    """Trained vectors of tokens: ``weight`` (tokens, features)."""

    def __init__(self, layer: Dict[str, Any], _: Any) -> None:
        super(_TorchTable, self).__init__()
        self.weight = nn.Parameter(torch.empty(layer["parameters"][0]["shape"]))


class _TorchUnembedding(nn.Module):
    """A score for each token of the vocabulary, by the ``weight`` of an embedding, which it is given."""

    def __init__(self, layer: Dict[str, Any], _: Any) -> None:
        super(_TorchUnembedding, self).__init__()
        has_bias = layer["attributes"]["bias"]
        self.bias = nn.Parameter(torch.empty(layer["attributes"]["vocabulary"])) if has_bias else None

    def forward(self, values: Any) -> Any:
        return functional.linear(values, self.weight, self.bias)


class _TorchClassToken(_TorchTable):
    """A trained token before those of each sequence."""

    def forward(self, values: Any) -> Any:
        return torch.cat((self.weight.to(values.dtype).expand(len(values), -1, -1), values), 1)


class _TorchPositions(_TorchTable):
    """A trained vector for each place, added to the token there."""

    def forward(self, values: Any) -> Any:
        return values + self.weight


class _TorchSegment(_TorchTable):
    """The first of the trained vectors, added to each token."""

    def forward(self, values: Any) -> Any:
        return values + self.weight[0]


class _TorchAttention(nn.Module):
    """Attention of several heads over queries, keys and values that lie one behind the other."""

    def __init__(self, layer: Dict[str, Any], _: Any) -> None:
        super(_TorchAttention, self).__init__()
        self._heads = layer["attributes"]["heads"]
        self._shared = layer["attributes"].get("key_value_heads", self._heads)
        self._causal = layer["attributes"]["causal"]
        turns = rotary_turns(layer)
        self._turns = turns is not None
        for name, table in zip(("cosines", "sines"), turns or ()):
            own = torch.tensor(table, dtype=torch.float32).unsqueeze(1)  # the same for all heads
            self.register_buffer(name, own, persistent=False)

    def forward(self, values: Any) -> Any:
        batch, tokens, _ = values.shape
        if self._shared == self._heads and not self._turns:
            parts = values.reshape(batch, tokens, 3, self._heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            sizes = [self._heads, self._shared, self._shared]
            rows = values.reshape(batch, tokens, sum(sizes), -1)
            if self._turns:
                turned, contents = rows.split([sum(sizes[:2]), sizes[2]], 2)
                parts = (*self._turned(turned).split(sizes[:2], 2), contents)
            else:
                parts = rows.split(sizes, 2)
            parts = [part.transpose(1, 2) for part in parts]
        joined = functional.scaled_dot_product_attention(
            *parts, is_causal=self._causal, enable_gqa=self._shared != self._heads
        )
        return joined.transpose(1, 2).reshape(batch, tokens, -1)

    def _turned(self, heads: Any) -> Any:
        """Return queries and keys (batch, tokens, heads, features) turned by the angles of their places."""
        first, second = heads.chunk(2, -1)
        cosines, sines = self.cosines.to(heads.dtype), self.sines.to(heads.dtype)
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


class _TorchSwiGlu(nn.Module):
    """The second half of each token's features, multiplied by SiLU of the first."""

    def forward(self, values: Any) -> Any:
        gates, contents = values.chunk(2, -1)
        return functional.silu(gates) * contents


# Each takes a layer and whether its input may be overwritten. Adding and joining are functions, not modules.
_MODULES: Dict[str, Callable[..., Any]] = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": lambda _, overwrite: nn.ReLU(inplace=overwrite),
    "tanh": lambda *_: nn.Tanh(),
    "sigmoid": lambda *_: nn.Sigmoid(),
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": lambda *_: nn.AdaptiveAvgPool2d(1),
    "lrn": _lrn,
    "dropout": lambda layer, _: nn.Dropout(layer["attributes"]["rate"]),
    "flatten": lambda *_: nn.Flatten(),
    "tokens": lambda *_: _TorchTokens(),
    "embedding": lambda layer, _: nn.Embedding(*layer["parameters"][0]["shape"]),
    "unembedding": _TorchUnembedding,
    "class_token": _TorchClassToken,
    "positions": _TorchPositions,
    "segment": _TorchSegment,
    "first_token": lambda *_: _TorchFirstToken(),
    "layer_norm": lambda layer, _: nn.LayerNorm(layer["output_shape"][-1], eps=layer["attributes"]["epsilon"]),
    "rms_norm": lambda layer, _: nn.RMSNorm(layer["output_shape"][-1], eps=layer["attributes"]["epsilon"]),
    "swiglu": lambda *_: _TorchSwiGlu(),
    "gelu": lambda layer, _: nn.GELU("tanh" if layer["attributes"]["approximate"] else "none"),
    "attention": _TorchAttention,
}
