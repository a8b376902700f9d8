"""LeNet-5 in its usual modern form: 6-16 convolutions, 120-84-10, ReLU and max pooling."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import Entry

INPUT_SHAPE = (1, 28, 28)
CLASSES = 10


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return LeNet-5 for images of any size that survives two halvings."""
    net = Network(input_shape)
    x = net.relu("relu1", net.conv2d("conv1", net.input, 6, 5, padding=2))
    x = net.max_pool("pool1", x, 2, stride=2)
    x = net.relu("relu2", net.conv2d("conv2", x, 16, 5))
    x = net.flatten("flatten", net.max_pool("pool2", x, 2, stride=2))
    x = net.relu("relu3", net.linear("fc1", x, 120))
    x = net.relu("relu4", net.linear("fc2", x, 84))
    net.linear("fc3", x, classes)
    return net.finish("lenet5", classes=classes)


ENTRY = Entry(
    name="lenet5",
    title="LeNet-5",
    source="LeCun et al. 1998, Gradient-based learning applied to document recognition",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=61_706,  # 61.7 k in common use, for 28x28 input padded by 2
    build=build,
)
