"""Plug-ins: frameworks, workloads, launchers, datasets and studies that other distributions bring by entry points.

A distribution declares an entry point in one of five groups, and steptime finds it by its name without a change of its
own::

    steptime.frameworks   a package whose folder holds framework.toml
    steptime.workloads    a steptime.catalog.workloads.table.Entry
    steptime.launchers    a subclass of steptime.launchers.base.AbstractLauncher
    steptime.datasets     a steptime.datasets.builtins.Builtin
    steptime.studies      a package whose folder holds study files (*.yaml)

Rules, which hold for all groups:

- names are known without importing a plug-in; it is imported when it is asked for by its name;
- a plug-in that cannot be imported or is of another type disturbs no one who does not ask for it: listed, it is
  there once with its cause; asked for by its name, it is an error with its cause;
- a name belongs to one distribution: two that give the same name are an error that names both.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar, cast

from steptime.errors import PluginError

OWN = "steptime"
"""The provider of all that steptime itself brings."""
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Plugin:
    """One entry point of another distribution."""

    kind: str
    """What it adds: ``framework``, ``workload``, ``launcher``, ``dataset`` or ``studies``."""
    name: str
    provider: str
    """The distribution and its version, as ``numpy-ring 0.1``."""
    value: str
    """``package.module``, or ``package.module:attribute``."""

    def load(self) -> object:
        """Import the plug-in and return its object; raises PluginError with the cause where that fails."""
        module, _, attribute = self.value.partition(":")
        try:
            found: object = import_module(module)
            for part in filter(None, attribute.split(".")):
                found = getattr(found, part)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise self.error(cause) from error
        return found

    def folder(self) -> Path:
        """Return the folder of the package that the plug-in names, without importing the package itself.

        Raises PluginError where there is no such package.
        """
        try:
            spec = find_spec(self.value)  # which imports the packages above it, and nothing else
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise self.error(cause) from error
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places:
            cause = f"no package {self.value!r}; name a folder that holds an __init__.py"
            raise self.error(cause)
        return Path(places[0])

    def error(self, cause: str) -> PluginError:
        """Return the error that names the plug-in, its distribution and a cause."""
        message = f"the {self.kind} {self.name!r} of {self.provider} ({self.value}) cannot be used: {cause}"
        return PluginError(message)


@cache
def plugins_of(kind: str) -> dict[str, Plugin]:
    """Return the plug-ins of one kind by name, none of them imported.

    Args:
        kind: ``framework``, ``workload``, ``launcher``, ``dataset`` or ``studies``.

    Raises PluginError when two distributions give the same name, or a name is not a name.
    """
    group = f"{OWN}.{kind if kind.endswith('s') else kind + 's'}"
    found: dict[str, Plugin] = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, _provider(point))):
        plugin = Plugin(kind, point.name, _provider(point), point.value)
        if not _NAME.fullmatch(plugin.name):
            cause = "a name is made of letters, digits, '_' and '-', and begins with a letter"
            raise plugin.error(cause)
        known = found.setdefault(plugin.name, plugin)
        if known != plugin:
            raise taken_twice(kind, plugin.name, known.provider, plugin.provider)
    return found


def own_and_plugins(kind: str, own: Iterable[str]) -> dict[str, Plugin]:
    """Return the plug-ins of one kind; raises PluginError, too, when one has a name that steptime's ``own`` have."""
    found = plugins_of(kind)
    for name in own:
        if name in found:
            raise taken_twice(kind, name, OWN, found[name].provider)
    return found


class Registry(Mapping[str, T]):
    """Things of one kind by name: steptime's own, then those of plug-ins, each imported when it is asked for.

    ``registry[name]`` raises PluginError where a plug-in cannot be used; iteration, ``in`` and ``len`` are over names
    and import nothing.
    """

    def __init__(self, kind: str, own: Mapping[str, T], accepts: Callable[[object], bool], expected: str) -> None:
        """Hold ``own`` things and find the others.

        Args:
            kind: as for ``plugins_of``.
            own: steptime's, by name.
            accepts: whether a plug-in's object is one of this kind.
            expected: what it must be, for the error where it is not.
        """
        self._kind = kind
        self._own = own
        self._accepts = accepts
        self._expected = expected

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        plugin = self._plugins[name]
        found = plugin.load()
        if not self._accepts(found):
            cause = f"it is {found!r}, where {self._expected} is expected"
            raise plugin.error(cause)
        own = getattr(found, "name", name)
        if own != name:
            cause = f"its own name is {own!r}; the entry point must have the same"
            raise plugin.error(cause)
        return cast("T", found)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._plugins

    def __len__(self) -> int:
        return len(self._own) + len(self._plugins)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._plugins

    def provider(self, name: str) -> str:
        """Return who brings ``name``: ``steptime``, or a distribution with its version."""
        return OWN if name in self._own else self._plugins[name].provider

    def broken(self) -> dict[str, str]:
        """Import every plug-in; return why those cannot be used that cannot, by name."""
        causes = {}
        for name in self._plugins:
            try:
                self[name]
            except PluginError as error:
                causes[name] = str(error)
        return causes

    @property
    def _plugins(self) -> dict[str, Plugin]:
        return own_and_plugins(self._kind, self._own)


def taken_twice(kind: str, name: str, first: str, second: str) -> PluginError:
    """Return the error that names both distributions that give ``name``."""
    message = f"the {kind} {name!r} is given twice: by {first} and by {second}; uninstall one of them, or rename it"
    return PluginError(message)


def _provider(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
