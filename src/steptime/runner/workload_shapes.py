"""The shape of a workload on its dataset: input shape and classes, or why the two do not go together."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.own_module import OwnModule, find_own_module
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.datasets.corpus import Corpus
from steptime.datasets.dataset import Contents
from steptime.errors import WorkloadError
from steptime.study.study import WorkloadChoice

_PLANE = 3  # axes of an image: channels, height, width
_Key = tuple[str, str | None, str | None, str | None, tuple[int, int] | None, int | None, int | None]


@dataclass(frozen=True)
class DatasetFacts:
    """The facts of a dataset that decide whether a workload can train on it."""

    shape: tuple[int, ...] | None = None
    """Of every sample, channels first; None for image files, which are resized and decoded as the workload needs."""
    classes: int | None = None
    """How many classes its labels name; None if that is not known yet."""
    contents: Contents | None = None
    """What of a folder of the user's is used, and what is not."""
    of_tokens: bool = False
    """Whether it is one row of tokens, of which a workload takes sequences of its own length."""
    corpus: Corpus | None = None
    """A user's own text."""


@dataclass(frozen=True)
class WorkloadShape:
    """The input shape and classes of a workload on its dataset, or why there are none."""

    input_shape: tuple[int, ...] = ()
    classes: int = 0
    reason: str | None = None
    own: OwnModule | None = None
    """The user's module, where the workload is one: it has neither shape nor classes."""


@dataclass(frozen=True)
class WorkloadShapes:
    """The workloads of a study on its datasets."""

    datasets: Mapping[str, DatasetFacts]
    _found: dict[_Key, WorkloadShape] = field(default_factory=dict)
    """Those of earlier calls: building a workload takes a while."""

    def of(self, choice: WorkloadChoice) -> WorkloadShape:
        """Return input shape and classes of a workload on its dataset, or why they do not go together."""
        key = (
            choice.module or choice.name,
            choice.data,
            choice.loss,
            choice.dataset,
            choice.image,
            choice.sequence,
            choice.classes,
        )
        if key not in self._found:
            facts = self.datasets.get(choice.dataset, DatasetFacts()) if choice.dataset else DatasetFacts()
            try:
                self._found[key] = _shape_on(choice, facts)
            except WorkloadError as error:
                self._found[key] = WorkloadShape(reason=f"{choice.name}: {error}")
        return self._found[key]

    def tokens_of(self, choice: WorkloadChoice) -> str | None:
        """Return the tokenizer of a workload's own text that must be trained; None for any other data."""
        corpus = self.datasets.get(choice.dataset or "", DatasetFacts()).corpus
        return corpus.reading.name if corpus else None


def module_of(choice: WorkloadChoice) -> OwnModule | None:
    """Return the user's module that a workload of a study is; None of others.

    Raises WorkloadError where its files cannot be read, or do not have what is named.
    """
    if choice.module is None or choice.data is None:
        return None
    folder, _, build = choice.module.rpartition("/")
    return find_own_module(Path(folder), build, choice.data, choice.loss)


def has_classes(choice: WorkloadChoice) -> bool:
    """Whether a workload has classes, so that it has an accuracy; of sequences, each next token has one."""
    if choice.module is not None:
        return False
    return build_workload(choice.name).loss in {"softmax_cross_entropy", "next_token_cross_entropy"}


def has_layer(choice: WorkloadChoice, kinds: Container[str]) -> bool:
    """Whether a workload has a layer of one of the kinds."""
    if choice.module is not None:
        return False
    return any(layer.kind in kinds for layer in build_workload(choice.name).layers)


def _shape_on(choice: WorkloadChoice, facts: DatasetFacts) -> WorkloadShape:
    if own := module_of(choice):
        return WorkloadShape(own=own)
    default = build_workload(choice.name, sequence=choice.sequence)
    reason = _mismatch(choice, facts, default)
    if reason:
        return WorkloadShape(reason=reason)
    classes = choice.classes or facts.classes or default.classes
    shape = facts.shape or (_resized(default, choice.image) if choice.image else default.input_shape)
    workload = build_workload(choice.name, shape, classes)
    return WorkloadShape(workload.input_shape, workload.classes)


def _mismatch(choice: WorkloadChoice, facts: DatasetFacts, default: Workload) -> str | None:
    name, data = choice.name, choice.dataset
    if data and (of_other_kind := _of_other_kind(choice, data, facts, default)):
        return of_other_kind
    if facts.shape and len(default.input_shape) == len(facts.shape) and facts.shape[0] != default.input_shape[0]:
        return f"{name} takes {_channels(default.input_shape[0])}, and {data} has {_channels(facts.shape[0])}"
    if facts.shape and choice.image and choice.image != facts.shape[-2:]:
        asked, there = ("x".join(map(str, sides)) for sides in (choice.image, facts.shape[-2:]))
        return f"{data} is stored as {there} and is not resized to {asked}"
    if choice.image and len(default.input_shape) != _PLANE:
        return f"{name} takes no images, so that the image size means nothing"
    if facts.classes and choice.classes and choice.classes < facts.classes:
        kinds = "tokens in its vocabulary" if facts.of_tokens else "classes"
        return f"{data} has {facts.classes} {kinds}, more than the {choice.classes} asked of {name}"
    return None


def _of_other_kind(choice: WorkloadChoice, data: str, facts: DatasetFacts, default: Workload) -> str | None:
    name = choice.name
    if LIBRARY[name].of_tokens != facts.of_tokens:
        kinds = ("images", "tokens")
        return f"{name} takes {kinds[not facts.of_tokens]}, and {data} has {kinds[facts.of_tokens]}"
    if not facts.of_tokens and (choice.tokens or choice.vocabulary):
        return f"{name} takes no tokens, so that a vocabulary means nothing"
    if default.loss == "masked_token_cross_entropy":
        return f"{name} hides tokens of synthetic samples only"
    return _unfit_text(facts.corpus, default, choice.classes) if facts.corpus else None


def _unfit_text(corpus: Corpus, default: Workload, asked: int | None) -> str | None:
    """Return why a user's own text does not fit a workload: too large a vocabulary, or too little text."""
    name, data, largest = default.name, corpus.name, corpus.largest
    vocabulary = asked or corpus.vocabulary or default.classes
    if largest and largest.token >= vocabulary:
        return (
            f"{data} has the token {largest.token} ({largest.file}, at place {largest.place}), outside of the "
            f"vocabulary of {vocabulary} of {name}; raise classes"
        )
    length, sequence = corpus.length_of(corpus.training), default.input_shape[0]
    if length is not None and length <= sequence:
        return f"{data} has {length} tokens, fewer than a sequence of {sequence} of {name} and the token behind it"
    return None


def _resized(default: Workload, sides: tuple[int, int]) -> tuple[int, ...]:
    return (default.input_shape[0], *sides)


def _channels(count: int) -> str:
    return "1 channel" if count == 1 else f"{count} channels"
