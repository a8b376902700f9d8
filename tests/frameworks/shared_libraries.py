"""Which frameworks train with the library of another, so that what the library does is tried once."""

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests

_TRIED_WHOLE = {"torch": "pytorch", "tensorflow": "tensorflow", "mxnet": "mxnet"}
"""Libraries that compute for several frameworks, by the one of which everything is tried."""
_OF_ANOTHER_VERSION = {"tensorflow1"}
"""Frameworks with such a library whose operations are not the same."""


def shares_library(name: str) -> bool:
    """Whether a framework's layers and optimizers are those of a library that another framework tries whole."""
    others = (_TRIED_WHOLE.get(library, name) for library in load_manifests()[name].libraries)
    return name not in _OF_ANOTHER_VERSION and any(other != name for other in others)


def outermost_strategies(name: str) -> list[str]:
    """The first and the last exact strategy of several workers: from whole copies to what is divided most."""
    found = _exact_strategies(name)
    return list(dict.fromkeys([*found[:1], *found[-1:]]))


def tried_strategies(name: str) -> list[str]:
    """The exact strategies of several workers; the outermost ones where another framework tries the library whole."""
    return outermost_strategies(name) if shares_library(name) else _exact_strategies(name)


def _exact_strategies(name: str) -> list[str]:
    supports = load_manifests()[name].strategies.items()
    return [each for each, support in supports if STRATEGIES[each].exact and support.max_workers != 1]
