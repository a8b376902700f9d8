"""Optional parts of steptime: large libraries that few verbs need, and the command that installs them."""

from dataclasses import dataclass
from importlib.util import find_spec

from steptime.errors import SteptimeError


@dataclass(frozen=True)
class Extra:
    """A part that ``pip install 'steptime[NAME]'`` adds."""

    module: str
    """What is imported of it."""
    purpose: str
    """What needs it, as the beginning of a sentence."""


EXTRAS = {
    "export": Extra("polars", "Tables for Parquet, CSV and Python"),
    "page": Extra("vl_convert", "Pictures"),
}
"""By the names of pyproject.toml."""


class MissingExtra(SteptimeError):  # noqa: N818 - nothing failed
    """A verb needs a library that is not installed; the message has the command that installs it."""


def is_installed(name: str) -> bool:
    """Return whether the library of an extra can be imported."""
    return find_spec(EXTRAS[name].module) is not None


def missing_message(name: str) -> str:
    """Return what an absent extra leaves out, and the command that installs it."""
    return f"{EXTRAS[name].purpose} need the extra '{name}': pip install 'steptime[{name}]'"


def require_extra(name: str) -> None:
    """Raise MissingExtra where the library of an extra cannot be imported."""
    if not is_installed(name):
        raise MissingExtra(missing_message(name))
