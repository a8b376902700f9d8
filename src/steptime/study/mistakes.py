"""Mistakes in the form of a study, as pydantic found them, with the nearest or the allowed choices."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from steptime.errors import choices_message
from steptime.file_name import HOST_NAME, file_name_mistake, host_name_mistake
from steptime.study.document import Mistake, Path
from steptime.study.study import schema

_LONGEST = 60


def form_mistakes(error: ValidationError) -> list[Mistake]:
    """Return every mistake of ``error`` with the path of the value that it is about."""
    return [Mistake(tuple(details["loc"]), _sentence(details)) for details in error.errors(include_url=False)]


def allowed_keys(path: Path) -> list[str]:
    """Return the keys that the mapping at ``path`` of a study may have; empty where it is none, or has free keys."""
    return list({key: None for node in _nodes(path) for key in node.get("properties", {})})


def _nodes(path: Path) -> list[dict[str, Any]]:
    """Return the schema of every kind of value that the study's form allows at ``path``."""
    form = schema()
    nodes = [form]
    for key in path:
        nodes = [below for node in nodes for below in _below(node, key, form)]
    return [flat for node in nodes for flat in _flat(node, form)]


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


def _unknown_key(_: object, path: Path, __: Mapping[str, Any]) -> str:
    return choices_message("key", str(path[-1]), allowed_keys(path[:-1])).replace("(choices:", "(allowed keys:")


def _no_mapping(value: object, path: Path, _: Mapping[str, Any]) -> str:
    keys = allowed_keys(path)
    takes = {node.get("type") for node in _nodes(path)}
    others = [words for kind, words in _SHORTER.items() if kind in takes]
    wrong = f"neither {' nor '.join(others)} nor a mapping" if others else "not a mapping"
    return f"{_shown(value)} is {wrong}" + (f"; it takes the keys {', '.join(keys)}" if keys else "")


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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_NEEDED = {
    "workloads": "name at least one, as 'steptime list workloads' shows them",
    "frameworks": "name at least one, as 'steptime list frameworks' shows them",
    "name": "it identifies which one is meant",
}
_WORDS: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "int_type": lambda value, _: f"{_shown(value)} is not a whole number",
    "int_from_float": lambda value, _: f"{_shown(value)} is not a whole number",
    "float_type": lambda value, _: f"{_shown(value)} is not a number",
    "finite_number": lambda value, _: f"{_shown(value)} is not a finite number",
    "bool_type": lambda value, _: f"{_shown(value)} is neither true nor false",
    "string_type": lambda value, _: f"{_shown(value)} is not text; put it in quotes if it is meant as one",
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
    "literal_error": _no_choice,
}
