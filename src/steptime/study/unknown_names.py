"""Unknown names in a study: frameworks, strategies, workloads, loaders, datasets, launchers, kinds of environments.

The caller passes the names that a study may use, so that this package need not import the packages that define them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from steptime.errors import choices_message
from steptime.study.document import Document, Mistake, Path
from steptime.study.loaders import SYNTHETIC
from steptime.study.trial import OptionValue


@dataclass(frozen=True)
class OptionFacts:
    """A setting of a framework."""

    type: Literal["bool", "int", "float", "str"]
    default: OptionValue
    choices: tuple[OptionValue, ...] = ()
    """The values it may have; empty where its type is the only limit."""
    strategies: tuple[str, ...] = ()
    """Where it means something; empty means everywhere."""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    """A number must be larger."""
    below: float | None = None
    also: tuple[OptionValue, ...] = ()
    """Values outside of these bounds that have a meaning of their own."""
    pattern: str | None = None
    """A regular expression that a text must match as a whole."""
    examples: tuple[str, ...] = ()
    """Texts that do."""

    @property
    def range(self) -> str:
        """``at least 1 and at most 1024``; empty without bounds."""
        bounds = {"above": self.above, "at least": self.minimum, "below": self.below, "at most": self.maximum}
        within = " and ".join(f"{words} {bound:.15g}" for words, bound in bounds.items() if bound is not None)
        return ", or ".join([*map(str, self.also), within]) if within else ""

    def mistake(self, name: str, value: object) -> str | None:
        """Say why the option ``name`` cannot have ``value``; None if it can."""
        if not _fits(value, self.type):
            return f"{value!r} is not {_TYPES[self.type]}, as {name} needs"
        if self.choices and value not in self.choices:
            return choices_message(f"value of {name}", str(value), map(str, self.choices))
        if isinstance(value, (int, float)) and value not in self.also and not self._within(value):
            return f"{name} must be {self.range}, not {value}"
        if self.pattern is not None and not re.fullmatch(self.pattern, str(value)):
            return f"{name} cannot be {str(value)[:60]!r}; write for example {' or '.join(map(repr, self.examples))}"
        return None

    def _within(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


_TYPES = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    if isinstance(value, int):
        return kind in ("int", "float")
    return isinstance(value, float if kind == "float" else str) and kind in ("float", "str")


@dataclass(frozen=True)
class FrameworkFacts:
    """What a study may ask of a framework."""

    strategies: tuple[str, ...]
    devices: tuple[str, ...] = ("cpu",)
    precisions: tuple[str, ...] = ("fp32",)
    loaders: tuple[str, ...] = (SYNTHETIC.name,)
    options: Mapping[str, OptionFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class Vocabulary:
    """All names, by what they name."""

    frameworks: Mapping[str, FrameworkFacts]
    workloads: tuple[str, ...]
    datasets: tuple[str, ...]
    """The built-in ones; a study may also name a folder."""
    launchers: tuple[str, ...]
    environment_kinds: tuple[str, ...]
    broken_frameworks: Mapping[str, str] = field(default_factory=dict)
    """Why a framework that another distribution brings cannot be used, by its name."""

    @property
    def strategies(self) -> list[str]:
        """What any framework knows."""
        return sorted({name for facts in self.frameworks.values() for name in facts.strategies})

    @property
    def loaders(self) -> list[str]:
        """What any framework knows, and ``synthetic``."""
        return sorted({SYNTHETIC.name} | {name for facts in self.frameworks.values() for name in facts.loaders})


AUTO = "auto"
ALL = "all"


def unknown_names(document: Document, vocabulary: Vocabulary) -> Iterator[Mistake]:
    """Yield every name of the study that is not in the vocabulary, with the nearest one that is."""
    for top in axis_mappings(document):
        auto = () if "exclude" in top else (AUTO,)
        several = () if "exclude" in top else (AUTO, ALL)
        axes: dict[str, tuple[str, Iterable[str]]] = {
            "frameworks": ("framework", vocabulary.frameworks),
            "strategies": ("strategy", [*several, *vocabulary.strategies]),
            "workloads": ("workload", vocabulary.workloads),
            "loaders": ("loader", [*auto, *vocabulary.loaders]),
        }
        for axis, (what, choices) in axes.items():
            yield from _unknown(document, (*top, axis), what, choices, vocabulary.broken_frameworks)
        yield from _unknown_keys(document, (*top, "options"), vocabulary.frameworks)
        for path, _ in document.each(*top, "workloads"):
            yield from _unknown_dataset(document, (*path, "dataset"), vocabulary)
    for path, _ in document.each("published"):
        for side in ("slower", "faster"):
            yield from _unknown(document, (*path, side, "frameworks"), "framework", vocabulary.frameworks)
            yield from _unknown(document, (*path, side, "strategies"), "strategy", vocabulary.strategies)
            yield from _unknown(document, (*path, side, "workloads"), "workload", vocabulary.workloads)
    for path, _ in document.each("published_efficiency"):
        yield from _unknown(document, (*path, "workloads"), "workload", vocabulary.workloads)
    yield from _unknown(document, ("predictions", "frameworks"), "framework", vocabulary.frameworks)
    yield from _unknown(document, ("predictions", "strategies"), "strategy", vocabulary.strategies)
    yield from _unknown(document, ("launcher",), "launcher", [AUTO, *vocabulary.launchers])
    yield from _unknown_keys(document, ("environments",), vocabulary.frameworks)
    for framework, _ in document.items("environments"):
        kind = ("environments", framework, "kind")
        yield from _unknown(document, kind, "kind of environment", vocabulary.environment_kinds)


def axis_mappings(document: Document) -> Iterator[Path]:
    """Yield where axes may be named: the study itself, and each item of include and exclude."""
    yield ()
    for key in ("include", "exclude"):
        yield from (path for path, _ in document.each(key))


def is_folder(dataset: str) -> bool:
    """Whether a dataset is meant as a folder: it holds a slash, or is a dot or a home folder."""
    return "/" in dataset or dataset in (".", "..", "~")


def _unknown(
    document: Document, path: Path, what: str, choices: Iterable[str], broken: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Mistake]:
    """Yield the names at ``path`` that are no choice; ``broken`` frameworks with their cause."""
    known = list(choices)
    for item_path, item in document.each(*path):
        name = item.get("name") if isinstance(item, dict) else item
        if isinstance(name, str) and name not in known:
            where = (*item_path, "name") if isinstance(item, dict) else item_path
            cause = broken.get(name) if what == "framework" else None
            yield Mistake(where, cause or choices_message(what, name, known))


def _unknown_keys(document: Document, path: Path, frameworks: Iterable[str]) -> Iterator[Mistake]:
    for key, _ in document.items(*path):
        if key not in frameworks:
            yield Mistake((*path, key), choices_message("framework", key, frameworks))


def _unknown_dataset(document: Document, path: Path, vocabulary: Vocabulary) -> Iterator[Mistake]:
    name = document.at(path)
    if isinstance(name, str) and name not in vocabulary.datasets and not is_folder(name):
        message = choices_message("dataset", name, vocabulary.datasets)
        yield Mistake(path, f"{message}; a folder of your own is written with a slash, as ./{name}")
