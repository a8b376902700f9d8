"""A multilayer perceptron that trains in a moment: 64 inputs, two hidden layers, 10 classes."""

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import Entry

_WIDTHS = (128, 64)


def build(input_shape: Shape, classes: int) -> Workload:
    """Return the perceptron; an image is flattened first."""
    net = Network(input_shape)
    x = net.flatten("flatten", net.input) if len(input_shape) > 1 else net.input
    for index, width in enumerate(_WIDTHS, 1):
        x = net.relu(f"relu{index}", net.linear(f"fc{index}", x, width))
    net.linear(f"fc{len(_WIDTHS) + 1}", x, classes)
    return net.finish("tiny_mlp", classes=classes)


TINY_MLP = Entry(
    name="tiny_mlp",
    title="a perceptron of two hidden layers",
    source="written for this example, 2026: 64-128-64-10, the size of scikit-learn's digits",
    input_shape=(64,),
    classes=10,
    published_parameters=64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10,
    build=build,
)
