"""Networks of Inception blocks: GoogLeNet (version 1), batch-normalised, and version 3; without auxiliary heads."""

from typing import NamedTuple

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Pair, Workload
from steptime.catalog.workloads.table import Entry


def _conv_norm_relu(  # noqa: PLR0913 - a convolution has this many numbers
    net: Network, name: str, source: str, out_channels: int, kernel: Pair, *, stride: Pair = 1, padding: Pair = 0
) -> str:
    """Add what the Inception family has: a convolution without bias, batch normalisation (epsilon 0.001), and ReLU."""
    x = net.conv2d(name, source, out_channels, kernel, stride=stride, padding=padding, bias=False)
    return net.relu(f"{name}.relu", net.batch_norm(f"{name}.norm", x, epsilon=1e-3))


class _BlockWidths(NamedTuple):
    """Channels of one Inception block's branches, as in the columns of the source's table 1."""

    ones: int
    threes_reduced: int
    threes: int
    fives_reduced: int
    fives: int
    pooled: int


_GOOGLENET_STAGES = {
    "3": {"a": _BlockWidths(64, 96, 128, 16, 32, 32), "b": _BlockWidths(128, 128, 192, 32, 96, 64)},
    "4": {
        "a": _BlockWidths(192, 96, 208, 16, 48, 64),
        "b": _BlockWidths(160, 112, 224, 24, 64, 64),
        "c": _BlockWidths(128, 128, 256, 24, 64, 64),
        "d": _BlockWidths(112, 144, 288, 32, 64, 64),
        "e": _BlockWidths(256, 160, 320, 32, 128, 128),
    },
    "5": {"a": _BlockWidths(256, 160, 320, 32, 128, 128), "b": _BlockWidths(384, 192, 384, 48, 128, 128)},
}


_GOOGLENET_POOLS = {"3": 3, "4": 3, "5": 2}


def _googlenet(input_shape: Shape, classes: int) -> Workload:
    """Return GoogLeNet; the number of parameters does not depend on the image size."""
    net = Network(input_shape)
    x = _conv_norm_relu(net, "conv1", net.input, 64, 7, stride=2, padding=3)
    x = net.max_pool("pool1", x, 3, stride=2, ceil_mode=True)
    x = _conv_norm_relu(net, "conv2", x, 64, 1)
    x = _conv_norm_relu(net, "conv3", x, 192, 3, padding=1)
    for stage, blocks in _GOOGLENET_STAGES.items():
        x = net.max_pool(f"pool{stage}", x, _GOOGLENET_POOLS[stage], stride=2, ceil_mode=True)
        for block, widths in blocks.items():
            x = _inception(net, f"inception{stage}{block}", x, widths)
    x = net.flatten("flatten", net.global_avg_pool("pool", x))
    net.linear("fc", net.dropout("dropout", x, 0.2), classes)
    return net.finish("googlenet", classes=classes)


def _inception(net: Network, name: str, source: str, widths: _BlockWidths) -> str:
    ones = _conv_norm_relu(net, f"{name}.1x1", source, widths.ones, 1)
    threes = _conv_norm_relu(net, f"{name}.3x3.reduce", source, widths.threes_reduced, 1)
    threes = _conv_norm_relu(net, f"{name}.3x3", threes, widths.threes, 3, padding=1)
    fives = _conv_norm_relu(net, f"{name}.5x5.reduce", source, widths.fives_reduced, 1)
    fives = _conv_norm_relu(net, f"{name}.5x5", fives, widths.fives, 3, padding=1)
    pooled = net.max_pool(f"{name}.pool", source, 3, stride=1, padding=1)
    pooled = _conv_norm_relu(net, f"{name}.pool.project", pooled, widths.pooled, 1)
    return net.concat(f"{name}.concat", [ones, threes, fives, pooled])


GOOGLENET = Entry(
    name="googlenet",
    title="GoogLeNet (Inception v1)",
    source=(
        "Szegedy et al. 2015, Going deeper with convolutions; batch-normalised and with 3x3 filters in the third "
        "branch, as in torchvision, whose total this is"
    ),
    input_shape=(3, 224, 224),
    classes=1000,
    published_parameters=6_624_904,
    build=_googlenet,
)


def _inception_v3(input_shape: Shape, classes: int) -> Workload:
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
    x = _conv_norm_relu(net, "conv1a", net.input, 32, 3, stride=2)
    x = _conv_norm_relu(net, "conv2a", x, 32, 3)
    x = _conv_norm_relu(net, "conv2b", x, 64, 3, padding=1)
    x = net.max_pool("pool1", x, 3, stride=2)
    x = _conv_norm_relu(net, "conv3b", x, 80, 1)
    x = _conv_norm_relu(net, "conv4a", x, 192, 3)
    return net.max_pool("pool2", x, 3, stride=2)


def _block_35(net: Network, name: str, source: str, pooled: int) -> str:
    """A block for grids of 35x35 (of images of 299x299): 5x5 as it is, and as two 3x3."""
    ones = _conv_norm_relu(net, f"{name}.1x1", source, 64, 1)
    fives = _conv_norm_relu(net, f"{name}.5x5.reduce", source, 48, 1)
    fives = _conv_norm_relu(net, f"{name}.5x5", fives, 64, 5, padding=2)
    double = _double(net, f"{name}.double", source, stride=1, padding=1)
    return net.concat(f"{name}.concat", [ones, fives, double, _pooled(net, name, source, pooled)])


def _shrink_35(net: Network, name: str, source: str) -> str:
    threes = _conv_norm_relu(net, f"{name}.3x3", source, 384, 3, stride=2)
    double = _double(net, f"{name}.double", source, stride=2, padding=0)
    return net.concat(f"{name}.concat", [threes, double, net.max_pool(f"{name}.pool", source, 3, stride=2)])


def _double(net: Network, name: str, source: str, *, stride: int, padding: int) -> str:
    x = _conv_norm_relu(net, f"{name}.reduce", source, 64, 1)
    x = _conv_norm_relu(net, f"{name}.1", x, 96, 3, padding=1)
    return _conv_norm_relu(net, f"{name}.2", x, 96, 3, stride=stride, padding=padding)


def _block_17(net: Network, name: str, source: str, inner: int) -> str:
    """A block for grids of 17x17: 7x7 as 1x7 and 7x1, once and twice."""
    ones = _conv_norm_relu(net, f"{name}.1x1", source, 192, 1)
    sevens = _conv_norm_relu(net, f"{name}.7x7.reduce", source, inner, 1)
    sevens = _wide(net, f"{name}.7x7.1", sevens, inner)
    sevens = _tall(net, f"{name}.7x7.2", sevens, 192)
    double = _conv_norm_relu(net, f"{name}.double.reduce", source, inner, 1)
    double = _tall(net, f"{name}.double.1", double, inner)
    double = _wide(net, f"{name}.double.2", double, inner)
    double = _tall(net, f"{name}.double.3", double, inner)
    double = _wide(net, f"{name}.double.4", double, 192)
    return net.concat(f"{name}.concat", [ones, sevens, double, _pooled(net, name, source, 192)])


def _shrink_17(net: Network, name: str, source: str) -> str:
    threes = _conv_norm_relu(net, f"{name}.3x3.reduce", source, 192, 1)
    threes = _conv_norm_relu(net, f"{name}.3x3", threes, 320, 3, stride=2)
    sevens = _conv_norm_relu(net, f"{name}.7x7.reduce", source, 192, 1)
    sevens = _wide(net, f"{name}.7x7.1", sevens, 192)
    sevens = _tall(net, f"{name}.7x7.2", sevens, 192)
    sevens = _conv_norm_relu(net, f"{name}.7x7.3", sevens, 192, 3, stride=2)
    return net.concat(f"{name}.concat", [threes, sevens, net.max_pool(f"{name}.pool", source, 3, stride=2)])


def _block_8(net: Network, name: str, source: str) -> str:
    """A block for grids of 8x8: branches that part into 1x3 and 3x1."""
    ones = _conv_norm_relu(net, f"{name}.1x1", source, 320, 1)
    threes = _conv_norm_relu(net, f"{name}.3x3.reduce", source, 384, 1)
    double = _conv_norm_relu(net, f"{name}.double.reduce", source, 448, 1)
    double = _conv_norm_relu(net, f"{name}.double.1", double, 384, 3, padding=1)
    ends = [ones, *_parted(net, f"{name}.3x3", threes), *_parted(net, f"{name}.double.2", double)]
    return net.concat(f"{name}.concat", [*ends, _pooled(net, name, source, 192)])


def _parted(net: Network, name: str, source: str) -> tuple[str, str]:
    wide = _conv_norm_relu(net, f"{name}.wide", source, 384, (1, 3), padding=(0, 1))
    tall = _conv_norm_relu(net, f"{name}.tall", source, 384, (3, 1), padding=(1, 0))
    return wide, tall


def _wide(net: Network, name: str, source: str, out_channels: int) -> str:
    return _conv_norm_relu(net, name, source, out_channels, (1, 7), padding=(0, 3))


def _tall(net: Network, name: str, source: str, out_channels: int) -> str:
    return _conv_norm_relu(net, name, source, out_channels, (7, 1), padding=(3, 0))


def _pooled(net: Network, name: str, source: str, out_channels: int) -> str:
    x = net.avg_pool(f"{name}.pool", source, 3, stride=1, padding=1)
    return _conv_norm_relu(net, f"{name}.pool.project", x, out_channels, 1)


INCEPTION_V3 = Entry(
    name="inception_v3",
    title="Inception v3",
    source="Szegedy et al. 2016, Rethinking the Inception architecture for computer vision",
    input_shape=(3, 299, 299),
    classes=1000,
    published_parameters=23_834_568,
    build=_inception_v3,
)
