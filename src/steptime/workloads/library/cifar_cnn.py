"""The small convolutional workload for CIFAR-10 that benchmarks call AlexNet: three 5x5 convolutions, two LRNs."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import Entry

INPUT_SHAPE = (3, 32, 32)
CLASSES = 10


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return 32-32-64 convolutions with overlapping pooling; pooling windows that do not fit are left out."""
    net = Network(input_shape)
    x = net.max_pool("pool1", net.conv2d("conv1", net.input, 32, 5, padding=2), 3, stride=2)
    x = _lrn(net, "norm1", net.relu("relu1", x))
    x = net.relu("relu2", net.conv2d("conv2", x, 32, 5, padding=2))
    x = _lrn(net, "norm2", net.max_pool("pool2", x, 3, stride=2))
    x = net.relu("relu3", net.conv2d("conv3", x, 64, 5, padding=2))
    x = net.flatten("flatten", net.avg_pool("pool3", x, 3, stride=2))
    net.linear("fc", x, classes)
    return net.finish("cifar_cnn", classes=classes)


def _lrn(net: Network, name: str, source: str) -> str:
    return net.lrn(name, source, size=3, alpha=5e-5, beta=0.75, k=1.0)


ENTRY = Entry(
    name="cifar_cnn",
    title="small AlexNet for CIFAR-10",
    source="Krizhevsky, cuda-convnet, layers-18pct; as in Shi et al. 2016, AlexNet on CIFAR-10",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=85_098,  # "about 85 k"; 89,578 where pooling rounds up instead of down
    build=build,
)
