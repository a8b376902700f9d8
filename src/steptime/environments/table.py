"""The kinds of environments, and what callers do with one."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from steptime.environments.cache import cache_folder
from steptime.environments.interpreters import Core, Existing
from steptime.environments.listing import ListedEnvironment, list_environments, remove
from steptime.environments.own import Own
from steptime.environments.spec import EnvironmentSpec, Making, Progress, ReadyEnvironment
from steptime.environments.with_uv import Uv
from steptime.environments.with_venv import Venv
from steptime.errors import EnvironmentFailure, choices_message

__all__ = [
    "KINDS",
    "EnvironmentSpec",
    "ListedEnvironment",
    "ReadyEnvironment",
    "addresses",
    "create",
    "create_all",
    "find_ready",
    "list_environments",
    "remove",
]


class Kind(Protocol):
    """How environments of one kind come to be.

    Requirements of the seam: ``find_ready`` starts no installer and changes nothing; ``create`` either returns a
    verified environment or raises EnvironmentFailure and leaves nothing that could be taken for one.
    """

    def find_ready(self, spec: EnvironmentSpec, cache: Path) -> ReadyEnvironment | None:
        """Return the environment if it is ready."""
        ...

    def create(self, spec: EnvironmentSpec, making: Making) -> ReadyEnvironment:
        """Return the environment, made if need be."""
        ...

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:
        """Return the folders of the cache where it may lie."""
        ...


KINDS: Mapping[str, Kind] = {"venv": Own(Venv()), "uv": Own(Uv()), "existing": Existing(), "core": Core()}


def find_ready(spec: EnvironmentSpec, cache: Path | None = None) -> ReadyEnvironment | None:
    """Return the environment of ``spec`` if it is ready to be launched in; None otherwise."""
    return _kind(spec).find_ready(spec, cache or cache_folder())


def create(
    spec: EnvironmentSpec,
    progress: Progress = lambda _stage: None,
    cancelled: threading.Event | None = None,
    cache: Path | None = None,
) -> ReadyEnvironment:
    """Return the environment of ``spec``, made if need be.

    Args:
        spec: what it must be.
        progress: called with each stage.
        cancelled: set it from another thread to stop.
        cache: the cache folder; the user's by default.

    Raises EnvironmentFailure, which says what failed, where the log is and what to do.
    """
    return _kind(spec).create(spec, Making(cache or cache_folder(), progress, cancelled or threading.Event()))


def create_all(
    specs: Iterable[EnvironmentSpec],
    progress: Callable[[str, str], None],
    at_once: int = 3,
    cache: Path | None = None,
) -> dict[str, ReadyEnvironment | EnvironmentFailure]:
    """Return, by name, each environment or why it cannot be made; one failure does not stop the others.

    Ctrl-C ends all installers, and nothing half made is left.

    Args:
        specs: with different names.
        progress: called with an environment's name and its stage, from other threads.
        at_once: installers at a time; they mostly wait for the disk and the registry.
        cache: the cache folder; the user's by default.
    """
    cancelled = threading.Event()

    def attempt(spec: EnvironmentSpec) -> ReadyEnvironment | EnvironmentFailure:
        try:
            return create(spec, lambda stage: progress(spec.name, stage), cancelled, cache)
        except EnvironmentFailure as failure:
            return failure

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            futures = {spec.name: pool.submit(attempt, spec) for spec in specs}
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def addresses(specs: Iterable[EnvironmentSpec], cache: Path | None = None) -> list[Path]:
    """Return the folders of the cache that environments of ``specs`` may use, preferred Pythons first.

    Others belong to other versions of steptime.
    """
    return [folder for spec in specs for folder in _kind(spec).addresses(spec, cache or cache_folder())]


def _kind(spec: EnvironmentSpec) -> Kind:
    if spec.kind not in KINDS:
        raise EnvironmentFailure(choices_message("kind of environment", spec.kind, KINDS))
    return KINDS[spec.kind]
