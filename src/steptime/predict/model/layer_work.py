"""The work of a workload, which communication policies read: its layers with their arithmetic and gradients."""

from math import prod

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.layers import Workload
from steptime.worker.communication import Gradient, LayerWork, Work

_VALUE_BYTES = 4


def work_of(workload: Workload, value_bytes: int = _VALUE_BYTES) -> Work:
    """Return the work of one step and sample of a workload.

    Args:
        workload: the trained network.
        value_bytes: width of an activation; gradients travel in 32 bits.
    """
    layers = []
    blocks = _blocks(workload)
    for place, (layer, cost) in enumerate(zip(workload.layers, costs(workload, value_bytes).layers, strict=True)):
        values_read = sum(prod(shape) for shape in layer.input_shapes)
        layers.append(
            LayerWork(
                name=layer.name,
                kind=layer.kind,
                forward_flops=cost.forward_flops,
                backward_flops=cost.backward_flops,
                traffic=float((values_read + prod(layer.output_shape)) * value_bytes),
                gradients=tuple(
                    Gradient(parameter.name, place, parameter.count * _VALUE_BYTES) for parameter in layer.parameters
                ),
                block=blocks[place],
            )
        )
    return Work(workload.name, tuple(layers))


def _blocks(workload: Workload) -> list[int]:
    """Return the block of every layer: a new one begins where only the newest output is read later."""
    last_read = {name: place for place, layer in enumerate(workload.layers) for name in layer.inputs}
    blocks, block, alive = [], 0, set[str]()
    for place, layer in enumerate(workload.layers):
        blocks.append(block)
        alive = {name for name in (*alive, *layer.inputs, layer.name) if last_read.get(name, -1) > place}
        if alive <= {layer.name}:
            block += 1
    return blocks
