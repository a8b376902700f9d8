"""ResNet-152 v1.5."""

from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Workload
from steptime.workloads.library.resnet import CLASSES, INPUT_SHAPE, SOURCE, build_resnet

__all__ = ["CLASSES", "INPUT_SHAPE", "PUBLISHED_PARAMETERS", "SOURCE", "build"]

PUBLISHED_PARAMETERS = 60_192_808  # 60.19 M at 1000 classes


def build(input_shape: Shape = INPUT_SHAPE, classes: int = CLASSES) -> Workload:
    """Return ResNet-152; the number of parameters does not depend on the image size."""
    return build_resnet("resnet152", (3, 8, 36, 3), input_shape, classes)
