"""ResNet-101 v1.5."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Workload
from steptime.workloads.library.resnet import CLASSES, INPUT_SHAPE, SOURCE, build_resnet

__all__ = ["CLASSES", "INPUT_SHAPE", "PUBLISHED_PARAMETERS", "SOURCE", "build"]

PUBLISHED_PARAMETERS = 44_549_160  # 44.55 M at 1000 classes


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return ResNet-101; the number of parameters does not depend on the image size."""
    return build_resnet("resnet101", (3, 4, 23, 3), input_shape, classes)
