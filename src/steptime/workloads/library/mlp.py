"""FCN5: four fully connected layers of sigmoids between 784 inputs and 10 classes."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.library.blocks import flat
from steptime.workloads.table import Entry

INPUT_SHAPE = (784,)
CLASSES = 10
_WIDTHS = (4096, 2048, 1024)


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return 784-4096-2048-1024-10; an image is flattened, and its size is that of the first layer."""
    net = Network(input_shape)
    x = flat(net, net.input)
    for index, width in enumerate(_WIDTHS, 1):
        x = net.sigmoid(f"sigmoid{index}", net.linear(f"fc{index}", x, width))
    net.linear("fc4", x, classes)
    return net.finish("mlp", classes=classes)


ENTRY = Entry(
    name="mlp",
    title="FCN5, a multilayer perceptron",
    source="Shi et al. 2016, Benchmarking state-of-the-art deep learning software tools (FCN5 on MNIST)",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=13_714_442,  # 13,707,264 weights, the published total, and 7,178 biases
    build=build,
)
