"""AlexNet in its usual form: one tower, five convolutions, three wide linear layers, no LRN."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import Entry

INPUT_SHAPE = (3, 224, 224)
CLASSES = 1000


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return AlexNet; smaller images, from 63x63 on, make the first linear layer smaller (256 instead of 9216 wide)."""
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


ENTRY = Entry(
    name="alexnet",
    title="AlexNet",
    source="Krizhevsky 2014, One weird trick for parallelizing convolutional neural networks",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=61_100_840,
    build=build,
)
