"""VGG-16 (configuration D): thirteen 3x3 convolutions in five stages, three wide linear layers."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import Entry

INPUT_SHAPE = (3, 224, 224)
CLASSES = 1000
_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return VGG-16; smaller images, from 32x32 on, make the first linear layer smaller (512 instead of 25088 wide)."""
    net = Network(input_shape)
    x = net.input
    for stage, widths in enumerate(_STAGES, 1):
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


ENTRY = Entry(
    name="vgg16",
    title="VGG-16",
    source="Simonyan and Zisserman 2015, Very deep convolutional networks for large-scale image recognition",
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=138_357_544,
    build=build,
)
