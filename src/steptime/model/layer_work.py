"""What a worker computes in a step and what comes of it: layers with their arithmetic, and gradients."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from steptime.workloads.costs import costs
from steptime.workloads.layers import Workload

_VALUE_BYTES = 4


@dataclass(frozen=True)
class Tensor:
    """The gradient of one parameter."""

    name: str
    layer: int
    """Position of its layer in the order of the forward pass."""
    bytes: int


@dataclass(frozen=True)
class LayerWork:
    """One layer; arithmetic and traffic are per sample."""

    name: str
    kind: str
    forward_flops: float
    backward_flops: float
    traffic: float
    """Bytes of activations that a forward pass reads and writes."""
    tensors: tuple[Tensor, ...] = ()
    """In the order in which the layer declares its parameters."""
    block: int = 0
    """Layers of one number stand between two points where a single array carries everything forward."""

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all its gradients, which are as many as those of its weights."""
        return sum(tensor.bytes for tensor in self.tensors)


@dataclass(frozen=True)
class Work:
    """All layers in the order of the forward pass."""

    name: str
    layers: tuple[LayerWork, ...]

    @property
    def gradient_bytes(self) -> int:
        """What one worker contributes to the exchange of a step."""
        return sum(layer.gradient_bytes for layer in self.layers)

    def backward_tensors(self) -> Iterator[Tensor]:
        """Yield gradients in the order in which the backward pass completes them: the reverse of their declaration."""
        for layer in reversed(self.layers):
            yield from reversed(layer.tensors)

    def forward_tensors(self) -> Iterator[Tensor]:
        """Yield gradients in the order of declaration."""
        for layer in self.layers:
            yield from layer.tensors


def work_of(workload: Workload, value_bytes: int = _VALUE_BYTES) -> Work:
    """Return the work of a workload.

    Args:
        workload: what is trained.
        value_bytes: width of an activation; gradients travel in 32 bits.
    """
    found = []
    blocks = _blocks(workload)
    for place, (layer, cost) in enumerate(zip(workload.layers, costs(workload, value_bytes).layers, strict=True)):
        read = sum(prod(shape) for shape in layer.input_shapes)
        found.append(
            LayerWork(
                name=layer.name,
                kind=layer.kind,
                forward_flops=cost.forward_flops,
                backward_flops=cost.backward_flops,
                traffic=float((read + prod(layer.output_shape)) * value_bytes),
                tensors=tuple(
                    Tensor(parameter.name, place, parameter.count * _VALUE_BYTES) for parameter in layer.parameters
                ),
                block=blocks[place],
            )
        )
    return Work(workload.name, tuple(found))


def even_work(name: str, gradient_bytes: int, pieces: int = 32) -> Work:
    """Return work of which no more is known than its bytes: equal layers with equal gradients.

    For workloads that are known by their number of parameters only; the last piece takes what does not divide.
    """
    each = gradient_bytes // pieces
    sizes = [each] * (pieces - 1) + [gradient_bytes - each * (pieces - 1)]
    return Work(
        name,
        tuple(
            LayerWork(f"piece{place}", "unknown", 1.0, 2.0, 1.0, (Tensor(f"piece{place}.weight", place, size),), place)
            for place, size in enumerate(sizes)
        ),
    )


def _blocks(workload: Workload) -> list[int]:
    """Return the block of every layer: a new one begins where only the newest output is read later."""
    last_read = {name: place for place, layer in enumerate(workload.layers) for name in layer.inputs}
    found, block, alive = [], 0, set[str]()
    for place, layer in enumerate(workload.layers):
        found.append(block)
        alive = {name for name in (*alive, *layer.inputs, layer.name) if last_read.get(name, -1) > place}
        if alive <= {layer.name}:
            block += 1
    return found
