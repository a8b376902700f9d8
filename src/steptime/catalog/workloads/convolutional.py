"""Chains of convolutions and fully connected layers, and residual networks.

Chains of convolutions, pooling and linear layers: LeNet-5, the small AlexNet for CIFAR-10, AlexNet and VGG-16.

Residual networks of bottleneck blocks, version 1.5 (the stride sits in the 3x3 convolution).
"""

from collections.abc import Sequence
from functools import partial

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import Entry


def _lenet5(input_shape: Shape, classes: int) -> Workload:
    """Return LeNet-5 in its usual modern form, with ReLU and max pooling, for images that survive two halvings."""
    net = Network(input_shape)
    x = net.relu("relu1", net.conv2d("conv1", net.input, 6, 5, padding=2))
    x = net.max_pool("pool1", x, 2, stride=2)
    x = net.relu("relu2", net.conv2d("conv2", x, 16, 5))
    x = net.flatten("flatten", net.max_pool("pool2", x, 2, stride=2))
    x = net.relu("relu3", net.linear("fc1", x, 120))
    x = net.relu("relu4", net.linear("fc2", x, 84))
    net.linear("fc3", x, classes)
    return net.finish("lenet5", classes=classes)


LENET5 = Entry(
    name="lenet5",
    title="LeNet-5",
    source="LeCun et al. 1998, Gradient-based learning applied to document recognition",
    input_shape=(1, 28, 28),
    classes=10,
    published_parameters=61_706,  # 61.7 k in common use, for 28x28 input padded by 2
    build=_lenet5,
)


def _cifar_cnn(input_shape: Shape, classes: int) -> Workload:
    """Return what benchmarks call AlexNet on CIFAR-10: 32-32-64 convolutions with overlapping pooling and two LRNs.

    Pooling windows that do not fit are left out.
    """
    net = Network(input_shape)
    x = net.max_pool("pool1", net.conv2d("conv1", net.input, 32, 5, padding=2), 3, stride=2)
    x = _cifar_lrn(net, "norm1", net.relu("relu1", x))
    x = net.relu("relu2", net.conv2d("conv2", x, 32, 5, padding=2))
    x = _cifar_lrn(net, "norm2", net.max_pool("pool2", x, 3, stride=2))
    x = net.relu("relu3", net.conv2d("conv3", x, 64, 5, padding=2))
    x = net.flatten("flatten", net.avg_pool("pool3", x, 3, stride=2))
    net.linear("fc", x, classes)
    return net.finish("cifar_cnn", classes=classes)


def _cifar_lrn(net: Network, name: str, source: str) -> str:
    return net.lrn(name, source, size=3, alpha=5e-5, beta=0.75, k=1.0)


CIFAR_CNN = Entry(
    name="cifar_cnn",
    title="small AlexNet for CIFAR-10",
    source="Krizhevsky, cuda-convnet, layers-18pct; as in Shi et al. 2016, AlexNet on CIFAR-10",
    input_shape=(3, 32, 32),
    classes=10,
    published_parameters=85_098,  # "about 85 k"; 89,578 where pooling rounds up instead of down
    build=_cifar_cnn,
)


def _alexnet(input_shape: Shape, classes: int) -> Workload:
    """Return AlexNet in its usual form: one tower, no LRN.

    Smaller images, from 63x63 on, make the first linear layer smaller (256 instead of 9216 wide).
    """
    net = Network(input_shape)
    x = net.relu("relu1", net.conv2d("conv1", net.input, 64, 11, stride=4, padding=2))
    x = net.max_pool("pool1", x, 3, stride=2)
    x = net.relu("relu2", net.conv2d("conv2", x, 192, 5, padding=2))
    x = net.max_pool("pool2", x, 3, stride=2)
    x = net.relu("relu3", net.conv2d("conv3", x, 384, 3, padding=1))
    x = net.relu("relu4", net.conv2d("conv4", x, 256, 3, padding=1))
    x = net.relu("relu5", net.conv2d("conv5", x, 256, 3, padding=1))
    x = net.flatten("flatten", net.max_pool("pool5", x, 3, stride=2))
    x = net.relu("relu6", net.linear("fc6", net.dropout("dropout6", x, 0.5), 4096))
    x = net.relu("relu7", net.linear("fc7", net.dropout("dropout7", x, 0.5), 4096))
    net.linear("fc8", x, classes)
    return net.finish("alexnet", classes=classes)


ALEXNET = Entry(
    name="alexnet",
    title="AlexNet",
    source="Krizhevsky 2014, One weird trick for parallelizing convolutional neural networks",
    input_shape=(3, 224, 224),
    classes=1000,
    published_parameters=61_100_840,
    build=_alexnet,
)


_VGG16_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def _vgg16(input_shape: Shape, classes: int) -> Workload:
    """Return VGG-16 (configuration D).

    Smaller images, from 32x32 on, make the first linear layer smaller (512 instead of 25088 wide).
    """
    net = Network(input_shape)
    x = net.input
    for stage, widths in enumerate(_VGG16_STAGES, 1):
        for index, width in enumerate(widths, 1):
            name = f"{stage}_{index}"
            x = net.relu(f"relu{name}", net.conv2d(f"conv{name}", x, width, 3, padding=1))
        x = net.max_pool(f"pool{stage}", x, 2, stride=2)
    x = net.flatten("flatten", x)
    for index in (6, 7):
        x = net.relu(f"relu{index}", net.linear(f"fc{index}", x, 4096))
        x = net.dropout(f"dropout{index}", x, 0.5)
    net.linear("fc8", x, classes)
    return net.finish("vgg16", classes=classes)


VGG16 = Entry(
    name="vgg16",
    title="VGG-16",
    source="Simonyan and Zisserman 2015, Very deep convolutional networks for large-scale image recognition",
    input_shape=(3, 224, 224),
    classes=1000,
    published_parameters=138_357_544,
    build=_vgg16,
)


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
