"""ResNet-50 v1.5."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Workload
from steptime.workloads.library.resnet import CLASSES, INPUT_SHAPE, SOURCE, build_resnet

__all__ = ["CLASSES", "INPUT_SHAPE", "PUBLISHED_PARAMETERS", "SOURCE", "build"]

PUBLISHED_PARAMETERS = 25_557_032  # 25.56 M at 1000 classes


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return ResNet-50; the number of parameters does not depend on the image size."""
    return build_resnet("resnet50", (3, 4, 6, 3), input_shape, classes)
