"""Residual networks of bottleneck blocks, version 1.5 (the stride sits in the 3x3 convolution)."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import Entry

INPUT_SHAPE = (3, 224, 224)
CLASSES = 1000
_SOURCE = "He et al. 2016, Deep residual learning; v1.5 as in the reference training scripts of the field"
_EXPANSION = 4
# Residual branches that start small keep deep workloads from amplifying rounding (Goyal et al. 2017 start at zero);
# with a full start, two correct float32 computations of ResNet-50 differ by a tenth after five steps. Not zero: a
# branch that a framework forgets must show.
_BRANCH_SCALE = 0.1


def resnet50(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return ResNet-50; as in all of these, the number of parameters does not depend on the image size."""
    return _resnet("resnet50", (3, 4, 6, 3), input_shape, classes)


def resnet101(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return ResNet-101."""
    return _resnet("resnet101", (3, 4, 23, 3), input_shape, classes)


def resnet152(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return ResNet-152."""
    return _resnet("resnet152", (3, 8, 36, 3), input_shape, classes)


def _resnet(name: str, depths: tuple[int, int, int, int], input_shape: Shape, classes: int) -> Workload:
    """Return a bottleneck ResNet with ``depths`` blocks in its four stages."""
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


RESNET50 = Entry("resnet50", "ResNet-50", _SOURCE, INPUT_SHAPE, CLASSES, 25_557_032, resnet50)
RESNET101 = Entry("resnet101", "ResNet-101", _SOURCE, INPUT_SHAPE, CLASSES, 44_549_160, resnet101)
RESNET152 = Entry("resnet152", "ResNet-152", _SOURCE, INPUT_SHAPE, CLASSES, 60_192_808, resnet152)
