"""The workloads by name, and how one is built for images and classes of one's own."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from steptime.catalog.plugins import Registry
from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.own_module import OwnModule
from steptime.errors import WorkloadError, choices_message

_IMAGE_AXES = 3


@dataclass(frozen=True)
class Entry:
    """One workload of the table; another distribution gives its own by an entry point of ``steptime.workloads``."""

    name: str
    title: str
    source: str
    """The publication that describes it."""
    input_shape: Shape
    """The usual shape of one sample: channels, height and width, or one length."""
    classes: int
    """The usual number of classes; of a workload of tokens, its vocabulary."""
    published_parameters: int
    """Trainable values at the usual input shape and classes, as published."""
    build: Callable[[Shape, int], Workload]
    """Makes the workload for an input shape and a number of classes; raises WorkloadError where it cannot."""
    of_tokens: bool = False
    """Whether a sample is a sequence of tokens, numbers below ``classes``, and its shape their count."""


class _Library(Mapping[str, Entry]):
    """steptime's own workloads: the module beside this one and the entry in it, imported when asked for."""

    _PLACES: Mapping[str, str] = {
        "mlp": "chains:MLP",
        "autoencoder": "chains:AUTOENCODER",
        "lenet5": "chains:LENET5",
        "cifar_cnn": "chains:CIFAR_CNN",
        "alexnet": "chains:ALEXNET",
        "googlenet": "inception:GOOGLENET",
        "vgg16": "chains:VGG16",
        "inception_v3": "inception:INCEPTION_V3",
        "resnet50": "blocks:RESNET50",
        "resnet101": "blocks:RESNET101",
        "resnet152": "blocks:RESNET152",
        "vit_tiny": "transformers:VIT_TINY",
        "vit_b16": "transformers:VIT_B16",
        "gpt2_tiny": "transformers:GPT2_TINY",
        "gpt2": "transformers:GPT2",
        "llama_tiny": "transformers:LLAMA_TINY",
        "tinyllama_1b": "transformers:TINYLLAMA_1B",
        "bert_tiny": "transformers:BERT_TINY",
        "bert_base": "transformers:BERT_BASE",
    }

    def __getitem__(self, name: str) -> Entry:
        module, _, entry = self._PLACES[name].partition(":")
        return cast("Entry", getattr(import_module(f"steptime.catalog.workloads.{module}"), entry))

    def __iter__(self) -> Iterator[str]:
        return iter(self._PLACES)

    def __len__(self) -> int:
        return len(self._PLACES)


LIBRARY = Registry(
    "workload", _Library(), lambda found: isinstance(found, Entry), "a steptime.catalog.workloads.table.Entry"
)
"""Every workload by its name: steptime's own, then those of plug-ins."""


def build_workload(
    name: str,
    input_shape: Shape | None = None,
    classes: int | None = None,
    image: Shape | None = None,
    sequence: int | None = None,
) -> Workload:
    """Return a workload of the library.

    Args:
        name: one of ``LIBRARY``.
        input_shape: of one sample; the usual one by default.
        classes: how many; the usual number by default.
        image: height and width in pixels, with the usual channels; not together with ``input_shape``.
        sequence: tokens of a sample, of a workload of tokens; not together with ``input_shape``.

    Raises WorkloadError for an unknown name, for a number that is not positive, and for images that are too small,
    with the layer that they are too small for and the smallest square that works.
    """
    if name not in LIBRARY:
        raise WorkloadError(choices_message("workload", name, LIBRARY))
    entry = LIBRARY[name]
    shape = _shape(entry, input_shape if sequence is None else _sequence(entry, input_shape, sequence), image)
    count = entry.classes if classes is None else classes
    if count < 1:
        message = f"{name}: classes must be at least 1, got {count}"
        raise WorkloadError(message)
    try:
        return entry.build(shape, count)
    except WorkloadError as error:
        message = f"{name} cannot take input of {_text(shape)}: {error}{_advice(entry, shape)}"
        raise WorkloadError(message) from error


def own_workload(name: str, own: OwnModule) -> Workload:
    """Return the workload of a user's module, which has no layers."""
    return Workload(name, (), 0, "own", (), own)


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


def _sequence(entry: Entry, input_shape: Shape | None, tokens: int) -> Shape:
    if input_shape is not None:
        message = f"{entry.name}: give input_shape or sequence, not both"
        raise WorkloadError(message)
    if not entry.of_tokens:
        message = f"{entry.name} takes no tokens; leave the sequence out"
        raise WorkloadError(message)
    return (tokens,)


def _advice(entry: Entry, shape: Shape) -> str:
    """The smallest square image that works, where size is what is wrong."""
    usual = _text(entry.input_shape)
    if len(entry.input_shape) != _IMAGE_AXES:
        return f"; it takes {'tokens' if entry.of_tokens else 'values'}, usually {usual}"
    if len(shape) != _IMAGE_AXES:
        return f"; use images, usually of {usual} (channels x height x width)"
    sides = range(1, max(entry.input_shape[1:]) + 1)
    works = next((side for side in sides if _fits(entry, (shape[0], side, side))), None)
    return f"; the smallest square image that works is {works}x{works}" if works else ""


def _fits(entry: Entry, shape: Shape) -> bool:
    try:
        entry.build(shape, entry.classes)
    except WorkloadError:
        return False
    return True


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
