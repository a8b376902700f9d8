"""The deep autoencoder of the MNIST digits: 784-1000-500-250-30 and back."""

from math import prod

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.library.blocks import flat
from steptime.workloads.table import Entry

INPUT_SHAPE = (784,)
CLASSES = 10
_WIDTHS = (1000, 500, 250)
_CODE = 30


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return an autoencoder of sigmoid layers around a linear code of 30 values.

    Its output is linear too, and its loss the squared error, because inputs are standardised and not confined to 0
    to 1 as in the source. An image is flattened; the output stays flat. ``classes`` is kept for datasets that have
    labels; nothing is classified.
    """
    net = Network(input_shape)
    x = flat(net, net.input)
    for index, width in enumerate(_WIDTHS, 1):
        x = net.sigmoid(f"encoder{index}.sigmoid", net.linear(f"encoder{index}", x, width))
    x = net.linear("code", x, _CODE)
    for index, width in enumerate(reversed(_WIDTHS), 1):
        x = net.sigmoid(f"decoder{index}.sigmoid", net.linear(f"decoder{index}", x, width))
    net.linear("output", x, prod(input_shape))
    return net.finish("autoencoder", classes=classes, loss="mean_squared_error")


ENTRY = Entry(
    name="autoencoder",
    title="deep autoencoder",
    source="Hinton and Salakhutdinov 2006, Reducing the dimensionality of data with neural networks",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=2_837_314,
    build=build,
)
