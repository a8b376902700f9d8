"""Mistakes in the form of a study, as pydantic found them, with the nearest or the allowed choices.

Unknown names in a study: frameworks, strategies, workloads, loaders, datasets, launchers, kinds of environments.

The names that a study may use: those of the catalog, of built-in datasets, and of plug-ins.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from steptime.catalog.choices import AUTO, LAUNCHERS, SYNTHETIC
from steptime.catalog.manifest import Manifest, broken_frameworks, load_manifests
from steptime.catalog.plugins import own_and_plugins
from steptime.catalog.workloads.table import LIBRARY
from steptime.datasets.builtins import BUILTINS
from steptime.errors import choices_message
from steptime.file_name import HOST_NAME, file_name_mistake, host_name_mistake
from steptime.study.document import Document, Mistake, Path
from steptime.study.study import ENVIRONMENT_KEYS, ENVIRONMENT_KINDS, schema
from steptime.synonyms import hint

_LONGEST = 60


def form_mistakes(error: ValidationError) -> list[Mistake]:
    """Return every mistake of ``error`` with the path of the value that it is about.

    A key that is missing since its name was mistyped is one mistake, told of the name.
    """
    every = error.errors(include_url=False)
    mistyped = [tuple(details["loc"]) for details in every if details["type"] == "extra_forbidden"]
    return [
        Mistake(tuple(details["loc"]), _sentence(details))
        for details in every
        if details["type"] != "missing" or not any(_is_meant(tuple(details["loc"]), path) for path in mistyped)
    ]


def _is_meant(missing: Path, unknown: Path) -> bool:
    """Whether an unknown key of the same mapping is taken for a missing one."""
    is_beside = missing[:-1] == unknown[:-1]
    return is_beside and repr(missing[-1]) in hint(str(unknown[-1]), allowed_keys(unknown[:-1]))


def allowed_keys(path: Path) -> list[str]:
    """Return the keys that the mapping at ``path`` of a study may have; empty where it is none, or has free keys."""
    return list({key: None for node in _nodes(path) for key in node.get("properties", {})})


def _nodes(path: Path) -> list[dict[str, Any]]:
    """Return the schema of every kind of value that the study's form allows at ``path``."""
    form = _form()
    nodes = [form]
    for key in path:
        nodes = [below for node in nodes for below in _below(node, key, form)]
    return [flat for node in nodes for flat in _flat(node, form)]


@cache
def _form() -> dict[str, Any]:
    """The schema of a study, which takes a tenth of a second to draw up and is asked for each key that is mistyped."""
    return schema()


def _below(node: Mapping[str, Any], key: str | int, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for flat in _flat(node, form):
        if isinstance(key, int):
            found.append(flat.get("items"))
        else:
            found.append(flat.get("properties", {}).get(key) or flat.get("additionalProperties"))
            found += flat.get("patternProperties", {}).values()  # of names that have a form
    return [below for below in found if isinstance(below, dict)]


def _flat(node: Mapping[str, Any], form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives of a schema, with references followed."""
    if "$ref" in node:
        return _flat(form["$defs"][node["$ref"].rsplit("/", 1)[1]], form)
    if "anyOf" in node:
        return [flat for choice in node["anyOf"] for flat in _flat(choice, form)]
    return [dict(node)]


def _sentence(details: ErrorDetails) -> str:
    kind, value, path = details["type"], details["input"], details["loc"]
    if value is None and kind.endswith("_type"):
        return "is empty; give it a value, or leave the key out"
    if kind in _WORDS:
        return _WORDS[kind](value, details.get("ctx", {}))
    if kind in _WORDS_OF_PLACE:
        return _WORDS_OF_PLACE[kind](value, path, details.get("ctx", {}))
    return f"{_shown(value)}: {details['msg']}"


def _missing(_: object, path: Path, __: Mapping[str, Any]) -> str:
    return f"is missing; {_NEEDED.get(str(path[-1]), 'it has no default')}"


_FEW_KEYS = 12
"""More hide the one that was meant."""


def _unknown_key(_: object, path: Path, __: Mapping[str, Any]) -> str:
    key = str(path[-1])
    keys = allowed_keys(path[:-1])
    meant = hint(key, keys)
    if meant and len(keys) > _FEW_KEYS:
        sentence = f"unknown key {key!r}; {meant} (docs/study-keys.md has all keys)"
    else:
        sentence = choices_message("key", key, keys).replace("(choices:", "(allowed keys:")
    return f"{sentence}; the study itself has the key {key}" if key in allowed_keys(()) else sentence


def _no_mapping(value: object, path: Path, _: Mapping[str, Any]) -> str:
    keys = allowed_keys(path)
    takes = {node.get("type") for node in _nodes(path)}
    others = [words for kind, words in _SHORTER.items() if kind in takes]
    wrong = f"neither {' nor '.join(others)} nor a mapping" if others else "not a mapping"
    takes_keys = f"; it takes the keys {', '.join(keys)}" if keys else ""
    is_count = type(value) is int and {"min", "max"} <= set(keys)
    exactly = f" ({{min: {value}, max: {value}}} for exactly {value})" if is_count else ""
    return f"{_shown(value)} is {wrong}{takes_keys}{exactly}"


def _no_text(value: object, _: Path, __: Mapping[str, Any]) -> str:
    if isinstance(value, list):
        return f"{_shown(value)} is a list inside a list; write its names beside the others"
    if not isinstance(value, dict):
        return f"{_shown(value)} is not text; put it in quotes if it is meant as one"
    inner = {str(key) for each in value.values() if isinstance(each, dict) for key in each}
    of_study = ", ".join(sorted(inner & set(allowed_keys(()))))
    sentence = (
        f"{_shown(value)} is a mapping and not text; if its keys are meant, write {', '.join(map(str, value))} alone"
    )
    return f"{sentence}, and {of_study} as keys of the study" if of_study else sentence


def _no_choice(value: object, path: Path, limits: Mapping[str, Any]) -> str:
    if path == ("version",):
        return f"version {_shown(value)} is not known; this steptime reads version 1"
    noun = next((key for key in reversed(path) if isinstance(key, str)), "value")
    return choices_message(noun, str(value), re.findall(r"'([^']*)'", limits["expected"]))


def _no_name(value: str, pattern: str) -> str:
    mistake = host_name_mistake(value) if pattern == HOST_NAME else file_name_mistake(value)
    return mistake or f"{_shown(value)} is not of the form {pattern}"


_SHORTER = {"boolean": "true nor false", "string": "a name"}
"""By type of the schema, what stands for a mapping."""


def _as_list(value: object) -> str:
    """Return how several numbers are written, of a value that means several; empty of others."""
    if isinstance(value, dict):
        numbers = list(value.values())
    else:
        numbers = re.split(r"\s*(?:,|-|:|\.\.|\bto\b|\s)\s*", value.strip()) if isinstance(value, str) else []
    several = len(numbers) > 1 and all(str(number).isdecimal() for number in numbers)
    return f"; several are a list, as [{', '.join(map(str, numbers))}]" if several else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_NEEDED = {
    "workloads": "name at least one, as 'steptime list workloads' shows them",
    "frameworks": "name at least one, as 'steptime list frameworks' shows them",
    "name": "it identifies which one is meant",
}
_WORDS: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "int_type": lambda value, _: f"{_shown(value)} is not a whole number{_as_list(value)}",
    "int_from_float": lambda value, _: f"{_shown(value)} is not a whole number",
    "float_type": lambda value, _: f"{_shown(value)} is not a number",
    "finite_number": lambda value, _: f"{_shown(value)} is not a finite number",
    "bool_type": lambda value, _: f"{_shown(value)} is neither true nor false",
    "list_type": lambda value, _: f"{_shown(value)} is neither a value nor a list of values",
    "greater_than": lambda value, limits: f"{_shown(value)} is too small; it must be more than {limits['gt']:g}",
    "greater_than_equal": lambda value, limits: f"{_shown(value)} is too small; the smallest is {limits['ge']:g}",
    "less_than": lambda value, limits: f"{_shown(value)} is too large; it must be less than {limits['lt']:g}",
    "less_than_equal": lambda value, limits: f"{_shown(value)} is too large; the largest is {limits['le']:g}",
    "string_too_long": lambda value, limits: f"{_shown(value)} is too long; it may have {limits['max_length']} letters",
    "too_short": lambda _, __: "is an empty list; name at least one",
    "string_pattern_mismatch": lambda value, limits: _no_name(value, limits["pattern"]),
    "value_error": lambda _, limits: str(limits["error"]),
}
_WORDS_OF_PLACE: dict[str, Callable[[Any, Path, Mapping[str, Any]], str]] = {
    "missing": _missing,
    "extra_forbidden": _unknown_key,
    "model_type": _no_mapping,
    "dict_type": _no_mapping,
    "string_type": _no_text,
    "literal_error": _no_choice,
}


@dataclass(frozen=True)
class KnownNames:
    """All names, by what they name."""

    frameworks: Mapping[str, Manifest]
    workloads: tuple[str, ...]
    datasets: tuple[str, ...]
    """The built-in ones; a study may also name a folder."""
    launchers: tuple[str, ...]
    broken_frameworks: Mapping[str, str] = field(default_factory=dict)
    """Why a framework that another distribution brings cannot be used, by its name."""

    @classmethod
    def installed(cls) -> "KnownNames":
        """Return the names of everything that is installed; raises PluginError when a name is given twice."""
        return cls(
            frameworks=load_manifests(),
            workloads=tuple(LIBRARY),
            datasets=tuple(BUILTINS),
            launchers=(*LAUNCHERS, *own_and_plugins("launcher", LAUNCHERS)),
            broken_frameworks=broken_frameworks(),
        )

    @property
    def strategies(self) -> list[str]:
        """What any framework knows."""
        return sorted({name for manifest in self.frameworks.values() for name in manifest.strategies})

    @property
    def loaders(self) -> list[str]:
        """What any framework knows, and ``synthetic``."""
        return sorted({SYNTHETIC.name} | {name for manifest in self.frameworks.values() for name in manifest.loaders})


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
            yield from _address(document, (*path, "validation"))
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
    yield from _address(document, path)
    if isinstance(name, str) and name not in known.datasets and not is_folder(name):
        message = choices_message("dataset", name, known.datasets)
        yield Mistake(path, f"{message}; a folder of your own is written with a slash, as ./{name}")


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://.")
_COPY = {"s3": "aws s3 cp --recursive", "gs": "gcloud storage cp -r", "hdfs": "hdfs dfs -get", "az": "azcopy cp"}
"""Commands that copy a folder from an address, by its scheme."""


def _address(document: Document, path: Path) -> Iterator[Mistake]:
    """Yield a dataset that is an address, of which a path would be made."""
    name = document.at(path)
    found = _ADDRESS.match(name) if isinstance(name, str) else None
    if found and isinstance(name, str):
        target = "./" + (re.sub(r"\W+", "-", name.rstrip("/").rpartition("/")[2]) or "pictures")
        command = _COPY.get(found[1].lower())
        how = f"copy it, as by {command} {shlex.quote(name)} {target}" if command else "download and unpack it"
        yield Mistake(path, f"{_shown(name)} is an address, and steptime downloads nothing; {how}, and name {target}")
