"""GoogLeNet (Inception v1) in its usual modern form: batch-normalised, without auxiliary heads."""

from typing import NamedTuple

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Network, Workload
from steptime.workloads.library.blocks import conv_norm_relu
from steptime.workloads.table import Entry

INPUT_SHAPE = (3, 224, 224)
CLASSES = 1000


class _Widths(NamedTuple):
    """Channels of one Inception block's branches, as in the columns of the source's table 1."""

    ones: int
    threes_reduced: int
    threes: int
    fives_reduced: int
    fives: int
    pooled: int


_STAGES = {
    "3": {"a": _Widths(64, 96, 128, 16, 32, 32), "b": _Widths(128, 128, 192, 32, 96, 64)},
    "4": {
        "a": _Widths(192, 96, 208, 16, 48, 64),
        "b": _Widths(160, 112, 224, 24, 64, 64),
        "c": _Widths(128, 128, 256, 24, 64, 64),
        "d": _Widths(112, 144, 288, 32, 64, 64),
        "e": _Widths(256, 160, 320, 32, 128, 128),
    },
    "5": {"a": _Widths(256, 160, 320, 32, 128, 128), "b": _Widths(384, 192, 384, 48, 128, 128)},
}
_POOL_BEFORE_STAGE = {"3": 3, "4": 3, "5": 2}


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return GoogLeNet; the number of parameters does not depend on the image size."""
    net = Network(input_shape)
    x = conv_norm_relu(net, "conv1", net.input, 64, 7, stride=2, padding=3)
    x = net.max_pool("pool1", x, 3, stride=2, ceil_mode=True)
    x = conv_norm_relu(net, "conv2", x, 64, 1)
    x = conv_norm_relu(net, "conv3", x, 192, 3, padding=1)
    for stage, blocks in _STAGES.items():
        x = net.max_pool(f"pool{stage}", x, _POOL_BEFORE_STAGE[stage], stride=2, ceil_mode=True)
        for block, widths in blocks.items():
            x = _inception(net, f"inception{stage}{block}", x, widths)
    x = net.flatten("flatten", net.global_avg_pool("pool", x))
    net.linear("fc", net.dropout("dropout", x, 0.2), classes)
    return net.finish("googlenet", classes=classes)


def _inception(net: Network, name: str, source: str, widths: _Widths) -> str:
    ones = conv_norm_relu(net, f"{name}.1x1", source, widths.ones, 1)
    threes = conv_norm_relu(net, f"{name}.3x3.reduce", source, widths.threes_reduced, 1)
    threes = conv_norm_relu(net, f"{name}.3x3", threes, widths.threes, 3, padding=1)
    fives = conv_norm_relu(net, f"{name}.5x5.reduce", source, widths.fives_reduced, 1)
    fives = conv_norm_relu(net, f"{name}.5x5", fives, widths.fives, 3, padding=1)
    pooled = net.max_pool(f"{name}.pool", source, 3, stride=1, padding=1)
    pooled = conv_norm_relu(net, f"{name}.pool.project", pooled, widths.pooled, 1)
    return net.concat(f"{name}.concat", [ones, threes, fives, pooled])


ENTRY = Entry(
    name="googlenet",
    title="GoogLeNet (Inception v1)",
    source=(
        "Szegedy et al. 2015, Going deeper with convolutions; batch-normalised and with 3x3 filters in the third "
        "branch, as in torchvision, whose total this is"
    ),
    input_shape=INPUT_SHAPE,
    classes=CLASSES,
    published_parameters=6_624_904,
    build=build,
)
