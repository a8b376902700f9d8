"""The library's workloads by name, and how one is built for images and classes of one's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import cast

from steptime.errors import WorkloadError, choices_message
from steptime.workloads.kinds import Shape
from steptime.workloads.layers import Workload

_IMAGE_AXES = 3


@dataclass(frozen=True)
class Entry:
    """One workload of the library; its file is imported when something beyond its name and title is asked for."""

    name: str
    title: str

    @property
    def build(self) -> Callable[[Shape, int], Workload]:
        """Makes the workload for an input shape and a number of classes."""
        return cast("Callable[[Shape, int], Workload]", self._file.build)

    @property
    def published_parameters(self) -> int:
        """Trainable values at the default input shape and classes, as published."""
        return cast("int", self._file.PUBLISHED_PARAMETERS)

    @property
    def source(self) -> str:
        """Where the workload was described."""
        return cast("str", self._file.SOURCE)

    @property
    def input_shape(self) -> Shape:
        """The usual shape of one sample."""
        return cast("Shape", self._file.INPUT_SHAPE)

    @property
    def classes(self) -> int:
        """The usual number of classes."""
        return cast("int", self._file.CLASSES)

    @property
    def _file(self) -> ModuleType:
        return import_module(f"steptime.workloads.library.{self.name}")


LIBRARY: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("mlp", "FCN5, a multilayer perceptron"),
        Entry("autoencoder", "deep autoencoder"),
        Entry("lenet5", "LeNet-5"),
        Entry("cifar_cnn", "small AlexNet for CIFAR-10"),
        Entry("alexnet", "AlexNet"),
        Entry("googlenet", "GoogLeNet (Inception v1)"),
        Entry("vgg16", "VGG-16"),
        Entry("inception_v3", "Inception v3"),
        Entry("resnet50", "ResNet-50"),
        Entry("resnet101", "ResNet-101"),
        Entry("resnet152", "ResNet-152"),
    )
}


def build_workload(
    name: str, input_shape: Shape | None = None, classes: int | None = None, image: Shape | None = None
) -> Workload:
    """Return a workload of the library.

    Args:
        name: one of ``LIBRARY``.
        input_shape: of one sample; the usual one by default.
        classes: how many; the usual number by default.
        image: height and width in pixels, with the usual channels; not together with ``input_shape``.

    Raises WorkloadError for an unknown name, for a number that is not positive, and for images that are too small,
    with the layer that they are too small for and the smallest square that works.
    """
    if name not in LIBRARY:
        raise WorkloadError(choices_message("workload", name, LIBRARY))
    entry = LIBRARY[name]
    shape = _shape(entry, input_shape, image)
    count = entry.classes if classes is None else classes
    if count < 1:
        message = f"{name}: classes must be at least 1, got {count}"
        raise WorkloadError(message)
    try:
        return entry.build(shape, count)
    except WorkloadError as error:
        message = f"{name} cannot take input of {_text(shape)}: {error}{_advice(entry, shape)}"
        raise WorkloadError(message) from error


def _shape(entry: Entry, input_shape: Shape | None, image: Shape | None) -> Shape:
    if input_shape is not None and image is not None:
        message = f"{entry.name}: give input_shape or image, not both"
        raise WorkloadError(message)
    if image is not None:
        if len(entry.input_shape) != _IMAGE_AXES:
            message = f"{entry.name} takes {_text(entry.input_shape)} values, no images; leave the image size out"
            raise WorkloadError(message)
        input_shape = (entry.input_shape[0], *image)
    shape = entry.input_shape if input_shape is None else tuple(input_shape)
    if len(shape) not in {1, _IMAGE_AXES} or min(shape) < 1:
        message = f"{entry.name}: an input shape is channels, height, width or one length, all positive, got {shape}"
        raise WorkloadError(message)
    return shape


def _advice(entry: Entry, shape: Shape) -> str:
    """The smallest square image that works, where size is what is wrong."""
    if len(shape) != _IMAGE_AXES:
        usual = _text(entry.input_shape)
        return f"; use images, usually of {usual} (channels x height x width)"
    too_small, works = min(shape[1:]), max(entry.input_shape[1:])
    if not _fits(entry, (shape[0], works, works)):
        return ""
    while works - too_small > 1:
        middle = (too_small + works) // 2
        if _fits(entry, (shape[0], middle, middle)):
            works = middle
        else:
            too_small = middle
    return f"; the smallest square image that works is {works}x{works}"


def _fits(entry: Entry, shape: Shape) -> bool:
    try:
        entry.build(shape, entry.classes)
    except WorkloadError:
        return False
    return True


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
