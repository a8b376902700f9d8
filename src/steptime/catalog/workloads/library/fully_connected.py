"""Fully connected layers of sigmoids: FCN5 and the deep autoencoder of the MNIST digits."""

from math import prod

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import Entry

_MLP_WIDTHS = (4096, 2048, 1024)


def _mlp(input_shape: Shape, classes: int) -> Workload:
    """Return 784-4096-2048-1024-10; an image is flattened, and its size is that of the first layer."""
    net = Network(input_shape)
    x = _flat(net, net.input)
    for index, width in enumerate(_MLP_WIDTHS, 1):
        x = net.sigmoid(f"sigmoid{index}", net.linear(f"fc{index}", x, width))
    net.linear("fc4", x, classes)
    return net.finish("mlp", classes=classes)


MLP = Entry(
    name="mlp",
    title="FCN5, a multilayer perceptron",
    source="Shi et al. 2016, Benchmarking state-of-the-art deep learning software tools (FCN5 on MNIST)",
    input_shape=(784,),
    classes=10,
    published_parameters=13_714_442,  # 13,707,264 weights, the published total, and 7,178 biases
    build=_mlp,
)


_AUTOENCODER_WIDTHS = (1000, 500, 250)
_CODE = 30


def _autoencoder(input_shape: Shape, classes: int) -> Workload:
    """Return an autoencoder of sigmoid layers around a linear code of 30 values.

    Its output is linear too, and its loss the squared error, because inputs are standardised and not confined to 0
    to 1 as in the source. An image is flattened; the output stays flat. ``classes`` is kept for datasets that have
    labels; nothing is classified.
    """
    net = Network(input_shape)
    x = _flat(net, net.input)
    for index, width in enumerate(_AUTOENCODER_WIDTHS, 1):
        x = net.sigmoid(f"encoder{index}.sigmoid", net.linear(f"encoder{index}", x, width))
    x = net.linear("code", x, _CODE)
    for index, width in enumerate(reversed(_AUTOENCODER_WIDTHS), 1):
        x = net.sigmoid(f"decoder{index}.sigmoid", net.linear(f"decoder{index}", x, width))
    net.linear("output", x, prod(input_shape))
    return net.finish("autoencoder", classes=classes, loss="mean_squared_error")


AUTOENCODER = Entry(
    name="autoencoder",
    title="deep autoencoder",
    source="Hinton and Salakhutdinov 2006, Reducing the dimensionality of data with neural networks",
    input_shape=(784,),
    classes=10,
    published_parameters=2_837_314,
    build=_autoencoder,
)


def _flat(net: Network, source: str) -> str:
    """Return ``source`` as it is if it has one axis, and flattened by a layer ``flatten`` if it is an image."""
    return source if len(net.shape(source)) == 1 else net.flatten("flatten", source)
