"""Workloads that are chains of layers.

Fully connected layers of sigmoids: FCN5 and the deep autoencoder of the MNIST digits.

Chains of convolutions, pooling and linear layers: LeNet-5, the small AlexNet for CIFAR-10, AlexNet and VGG-16.
"""

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
