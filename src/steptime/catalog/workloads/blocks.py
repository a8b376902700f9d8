"""Residual networks of bottleneck blocks, version 1.5 (the stride sits in the 3x3 convolution)."""

from collections.abc import Sequence
from functools import partial

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import Entry

_SOURCE = "He et al. 2016, Deep residual learning; v1.5 as in the reference training scripts of the field"
_EXPANSION = 4
# Residual branches that start small keep deep workloads from amplifying rounding (Goyal et al. 2017 start at zero);
# with a full start, two correct float32 computations of ResNet-50 differ by a tenth after five steps. Not zero: a
# branch that a framework forgets must show.
_BRANCH_SCALE = 0.1


def _resnet(name: str, depths: Sequence[int], input_shape: Shape, classes: int) -> Workload:
    """Return a bottleneck ResNet with ``depths`` blocks in its four stages; its parameters suit images of any size."""
    net = Network(input_shape)
    x = _conv_norm(net, "conv1", net.input, 64, 7, stride=2, padding=3)
    x = net.relu("relu1", x)
    x = net.max_pool("pool1", x, 3, stride=2, padding=1)
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(net, f"stage{stage + 1}.{block}", x, 64 * 2**stage, stride)
    x = net.flatten("flatten", net.global_avg_pool("pool", x))
    net.linear("fc", x, classes)
    return net.finish(name, classes=classes)


def _bottleneck(net: Network, name: str, source: str, width: int, stride: int) -> str:
    x = net.relu(f"{name}.relu1", _conv_norm(net, f"{name}.conv1", source, width, 1))
    x = _conv_norm(net, f"{name}.conv2", x, width, 3, stride=stride, padding=1)
    x = net.relu(f"{name}.relu2", x)
    x = _conv_norm(net, f"{name}.conv3", x, width * _EXPANSION, 1, initial_scale=_BRANCH_SCALE)
    shortcut = source
    if net.shape(source) != net.shape(x):
        shortcut = _conv_norm(net, f"{name}.shortcut", source, width * _EXPANSION, 1, stride=stride)
    return net.relu(f"{name}.relu3", net.add(f"{name}.add", [x, shortcut]))


def _conv_norm(  # noqa: PLR0913 - a convolution has this many numbers
    net: Network,
    name: str,
    source: str,
    out_channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    initial_scale: float = 1.0,
) -> str:
    x = net.conv2d(name, source, out_channels, kernel, stride=stride, padding=padding, bias=False)
    return net.batch_norm(f"{name}.norm", x, initial_scale=initial_scale)


def _entry(depth: int, published_parameters: int, *blocks: int) -> Entry:
    name = f"resnet{depth}"
    build = partial(_resnet, name, blocks)
    return Entry(name, f"ResNet-{depth}", _SOURCE, (3, 224, 224), 1000, published_parameters, build)


RESNET50 = _entry(50, 25_557_032, 3, 4, 6, 3)
RESNET101 = _entry(101, 44_549_160, 3, 4, 23, 3)
RESNET152 = _entry(152, 60_192_808, 3, 8, 36, 3)
