"""Unknown names in a study: frameworks, strategies, workloads, loaders, datasets, launchers, kinds of environments."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from steptime.catalog.choices import AUTO
from steptime.errors import choices_message
from steptime.study.document import Document, Mistake, Path
from steptime.study.known_names import KnownNames
from steptime.study.study import ENVIRONMENT_KEYS, ENVIRONMENT_KINDS

ALL = "all"


def unknown_names(document: Document, known: KnownNames) -> Iterator[Mistake]:
    """Yield every name of the study that is not known, with the nearest one that is."""
    for top in axis_mappings(document):
        auto = () if "exclude" in top else (AUTO,)
        several = () if "exclude" in top else (AUTO, ALL)
        axes: dict[str, tuple[str, Iterable[str]]] = {
            "frameworks": ("framework", known.frameworks),
            "strategies": ("strategy", [*several, *known.strategies]),
            "workloads": ("workload", [*known.workloads, *own_names(document)]),
            "loaders": ("loader", [*auto, *known.loaders]),
        }
        for axis, (what, choices) in axes.items():
            yield from _unknown(document, (*top, axis), what, choices, known.broken_frameworks)
        yield from _unknown_keys(document, (*top, "options"), known.frameworks)
        for path, _ in document.each(*top, "workloads"):
            yield from _unknown_dataset(document, (*path, "dataset"), known)
    for path, _ in document.each("published"):
        for side in ("slower", "faster"):
            yield from _unknown(document, (*path, side, "frameworks"), "framework", known.frameworks)
            yield from _unknown(document, (*path, side, "strategies"), "strategy", known.strategies)
            yield from _unknown(document, (*path, side, "workloads"), "workload", known.workloads)
    for path, _ in document.each("published_efficiency"):
        yield from _unknown(document, (*path, "workloads"), "workload", known.workloads)
    yield from _unknown(document, ("predictions", "frameworks"), "framework", known.frameworks)
    yield from _unknown(document, ("predictions", "strategies"), "strategy", known.strategies)
    yield from _unknown(document, ("launcher",), "launcher", [AUTO, *known.launchers])
    yield from _unknown_keys(document, ("environments",), known.frameworks)
    yield from _unknown_environments(document)


def own_names(document: Document) -> list[str]:
    """Return the names of workloads that are modules of the user's."""
    found = []
    for top in axis_mappings(document):
        for _, item in document.each(*top, "workloads"):
            if isinstance(item, dict) and item.get("module") is not None and isinstance(item.get("name"), str):
                found.append(item["name"])
    return found


def _unknown_environments(document: Document) -> Iterator[Mistake]:
    for path, _ in environments_of(document):
        yield from _unknown(document, (*path, "kind"), "kind of environment", ENVIRONMENT_KINDS)
    named = [name for name, _ in document.items("named_environments")]
    for top in axis_mappings(document):
        for path, name in document.each(*top, "environment_names"):
            if name is not None:
                yield from _unknown(document, path, "named environment", named)


def environments_of(document: Document) -> Iterator[tuple[Path, Any]]:
    """Yield the environments of a study, whatever they are named after, with their places."""
    for key in ENVIRONMENT_KEYS:
        yield from (((key, name), item) for name, item in document.items(key))


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
    """Yield the names at ``path`` that are not a choice; ``broken`` frameworks with their cause."""
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


def _unknown_dataset(document: Document, path: Path, known: KnownNames) -> Iterator[Mistake]:
    name = document.at(path)
    if isinstance(name, str) and name not in known.datasets and not is_folder(name):
        message = choices_message("dataset", name, known.datasets)
        yield Mistake(path, f"{message}; a folder of your own is written with a slash, as ./{name}")
