"""Inception v3 without its auxiliary head."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.library.blocks import conv_norm_relu
from steptime.workloads.table import Entry

INPUT_SHAPE = (3, 299, 299)
CLASSES = 1000


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return Inception v3 for images from 75x75 on; the number of parameters does not depend on their size."""
    net = Network(input_shape)
    x = _stem(net)
    for block, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = _block_35(net, f"mixed{block}", x, pooled)
    x = _shrink_35(net, "mixed6a", x)
    for block, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = _block_17(net, f"mixed{block}", x, inner)
    x = _shrink_17(net, "mixed7a", x)
    for block in ("7b", "7c"):
        x = _block_8(net, f"mixed{block}", x)
    x = net.dropout("dropout", net.global_avg_pool("pool", x), 0.5)
    net.linear("fc", net.flatten("flatten", x), classes)
    return net.finish("inception_v3", classes=classes)


def _stem(net: Network) -> str:
    x = conv_norm_relu(net, "conv1a", net.input, 32, 3, stride=2)
    x = conv_norm_relu(net, "conv2a", x, 32, 3)
    x = conv_norm_relu(net, "conv2b", x, 64, 3, padding=1)
    x = net.max_pool("pool1", x, 3, stride=2)
    x = conv_norm_relu(net, "conv3b", x, 80, 1)
    x = conv_norm_relu(net, "conv4a", x, 192, 3)
    return net.max_pool("pool2", x, 3, stride=2)


def _block_35(net: Network, name: str, source: str, pooled: int) -> str:
    """A block for grids of 35x35 (of images of 299x299): 5x5 as it is, and as two 3x3."""
    ones = conv_norm_relu(net, f"{name}.1x1", source, 64, 1)
    fives = conv_norm_relu(net, f"{name}.5x5.reduce", source, 48, 1)
    fives = conv_norm_relu(net, f"{name}.5x5", fives, 64, 5, padding=2)
    double = _double(net, f"{name}.double", source, stride=1, padding=1)
    return net.concat(f"{name}.concat", [ones, fives, double, _pooled(net, name, source, pooled)])


def _shrink_35(net: Network, name: str, source: str) -> str:
    threes = conv_norm_relu(net, f"{name}.3x3", source, 384, 3, stride=2)
    double = _double(net, f"{name}.double", source, stride=2, padding=0)
    return net.concat(f"{name}.concat", [threes, double, net.max_pool(f"{name}.pool", source, 3, stride=2)])


def _double(net: Network, name: str, source: str, *, stride: int, padding: int) -> str:
    x = conv_norm_relu(net, f"{name}.reduce", source, 64, 1)
    x = conv_norm_relu(net, f"{name}.1", x, 96, 3, padding=1)
    return conv_norm_relu(net, f"{name}.2", x, 96, 3, stride=stride, padding=padding)


def _block_17(net: Network, name: str, source: str, inner: int) -> str:
    """A block for grids of 17x17: 7x7 as 1x7 and 7x1, once and twice."""
    ones = conv_norm_relu(net, f"{name}.1x1", source, 192, 1)
    sevens = conv_norm_relu(net, f"{name}.7x7.reduce", source, inner, 1)
    sevens = _wide(net, f"{name}.7x7.1", sevens, inner)
    sevens = _tall(net, f"{name}.7x7.2", sevens, 192)
    double = conv_norm_relu(net, f"{name}.double.reduce", source, inner, 1)
    double = _tall(net, f"{name}.double.1", double, inner)
    double = _wide(net, f"{name}.double.2", double, inner)
    double = _tall(net, f"{name}.double.3", double, inner)
    double = _wide(net, f"{name}.double.4", double, 192)
    return net.concat(f"{name}.concat", [ones, sevens, double, _pooled(net, name, source, 192)])


def _shrink_17(net: Network, name: str, source: str) -> str:
    threes = conv_norm_relu(net, f"{name}.3x3.reduce", source, 192, 1)
    threes = conv_norm_relu(net, f"{name}.3x3", threes, 320, 3, stride=2)
    sevens = conv_norm_relu(net, f"{name}.7x7.reduce", source, 192, 1)
    sevens = _wide(net, f"{name}.7x7.1", sevens, 192)
    sevens = _tall(net, f"{name}.7x7.2", sevens, 192)
    sevens = conv_norm_relu(net, f"{name}.7x7.3", sevens, 192, 3, stride=2)
    return net.concat(f"{name}.concat", [threes, sevens, net.max_pool(f"{name}.pool", source, 3, stride=2)])


def _block_8(net: Network, name: str, source: str) -> str:
    """A block for grids of 8x8: branches that part into 1x3 and 3x1."""
    ones = conv_norm_relu(net, f"{name}.1x1", source, 320, 1)
    threes = conv_norm_relu(net, f"{name}.3x3.reduce", source, 384, 1)
    double = conv_norm_relu(net, f"{name}.double.reduce", source, 448, 1)
    double = conv_norm_relu(net, f"{name}.double.1", double, 384, 3, padding=1)
    ends = [ones, *_parted(net, f"{name}.3x3", threes), *_parted(net, f"{name}.double.2", double)]
    return net.concat(f"{name}.concat", [*ends, _pooled(net, name, source, 192)])


def _parted(net: Network, name: str, source: str) -> tuple[str, str]:
    wide = conv_norm_relu(net, f"{name}.wide", source, 384, (1, 3), padding=(0, 1))
    tall = conv_norm_relu(net, f"{name}.tall", source, 384, (3, 1), padding=(1, 0))
    return wide, tall


def _wide(net: Network, name: str, source: str, out_channels: int) -> str:
    return conv_norm_relu(net, name, source, out_channels, (1, 7), padding=(0, 3))


def _tall(net: Network, name: str, source: str, out_channels: int) -> str:
    return conv_norm_relu(net, name, source, out_channels, (7, 1), padding=(3, 0))


def _pooled(net: Network, name: str, source: str, out_channels: int) -> str:
    x = net.avg_pool(f"{name}.pool", source, 3, stride=1, padding=1)
    return conv_norm_relu(net, f"{name}.pool.project", x, out_channels, 1)


ENTRY = Entry(
    name="inception_v3",
    title="Inception v3",
    source="Szegedy et al. 2016, Rethinking the Inception architecture for computer vision",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=23_834_568,
    build=build,
)
