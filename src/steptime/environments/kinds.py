"""The kinds of environments, and the operations on all of them: find, create, list, remove.

A cached environment is found by its content and made by a tool; an existing one is the user's interpreter; the core is
steptime's own interpreter. The last two make nothing.

The inventory of the cache: its environments, and their removal.
"""

import contextlib
import platform
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from steptime.environments.build import Build, idle, log_of, only_maker, size_of
from steptime.environments.cache import address, cache_folder, environments_folder, read_marker, ready_at
from steptime.environments.fingerprint import packages
from steptime.environments.spec import BuildContext, EnvironmentSpec, Progress, ReadyEnvironment, choose_python
from steptime.environments.subprocesses import ask, container_fingerprint, fingerprint_of
from steptime.environments.tools import Tool, Uv, Venv
from steptime.errors import EnvironmentFailure, choices_message

_NAME = re.compile(r"(?P<name>.+)-(?P<digest>[0-9a-f]{12})")


@dataclass(frozen=True)
class ListedEnvironment:
    """One environment of the cache."""

    name: str
    digest: str
    """Of its content; two environments of one name differ in it."""
    folder: Path
    bytes: int
    created_at: str | None
    """ISO 8601; None while it is not ready."""
    python_version: str | None
    ready: bool
    current: bool
    """Whether this version of steptime would use it."""
    unusable: str | None = None
    """Why it is complete and yet not ready, with the next step."""


def list_environments(cache: Path | None = None, current: Container[Path] = ()) -> list[ListedEnvironment]:
    """Return all environments of a cache, ready or not, by name.

    Args:
        cache: the cache folder, which need not exist; the user's by default.
        current: the folders in use by this version, from ``kinds.addresses``.
    """
    listed = []
    for folder, match in _folders(cache or cache_folder()):
        marker, unusable = {}, None
        try:
            marker = read_marker(folder) or {}
        except EnvironmentFailure as failure:
            unusable = str(failure)
        listed.append(
            ListedEnvironment(
                name=match["name"],
                digest=match["digest"],
                folder=folder,
                bytes=marker.get("bytes") or size_of(folder),
                created_at=marker.get("created_at"),
                python_version=marker.get("python"),
                ready=bool(marker),
                current=folder in current,
                unusable=unusable,
            )
        )
    return listed


def remove(name: str, cache: Path | None = None) -> int:
    """Remove all environments called ``name`` (or the one called ``name-digest``) and their logs; return bytes freed.

    Raises EnvironmentFailure when somebody is making one of them, or it cannot be removed.
    """
    freed = 0
    for folder, match in _folders(cache or cache_folder()):
        if name not in {match["name"], folder.name}:
            continue
        with idle(folder):
            freed += size_of(folder, own=True)
            try:
                # The marker goes first: a removal that is interrupted must not leave something that looks ready.
                (folder / "ready.json").unlink(missing_ok=True)
                shutil.rmtree(folder)
                log_of(folder).unlink(missing_ok=True)
            except OSError as error:
                message = f"{folder} cannot be removed: {error.filename}: {error.strerror}"
                raise EnvironmentFailure(message) from error
    return freed


def _folders(cache: Path) -> list[tuple[Path, re.Match[str]]]:
    root = environments_folder(cache)
    paths = sorted(root.iterdir()) if root.is_dir() else []
    return [(path, match) for path in paths if path.is_dir() and (match := _NAME.fullmatch(path.name))]


class CachedEnvironment:
    """A kind of environment that lies in the cache."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def find_ready(self, spec: EnvironmentSpec, cache: Path | None) -> ReadyEnvironment | None:
        """Return the environment of ``spec`` for the first of its Pythons that has one; starts no process."""
        if cache is None:
            return None
        return next(filter(None, (ready_at(folder, spec) for folder in self.addresses(spec, cache))), None)

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:
        """Return the folders where an environment of ``spec`` may lie."""
        return [address(spec, version, cache) for version in spec.pythons]

    def create(self, spec: EnvironmentSpec, context: BuildContext) -> ReadyEnvironment:
        """Return the environment of ``spec``, made if need be.

        Raises EnvironmentFailure when it cannot be made; nothing of it is left then but its log.
        """
        if ready := self.find_ready(spec, context.cache):
            return ready
        python, version = choose_python(spec.name, spec.pythons)
        folder = address(spec, version, context.cache)
        try:
            waiting = "waiting for another process"
            with only_maker(folder, lambda: context.progress(waiting), context.cancelled) as lock:
                build = Build(self._tool, spec, context, folder, lock)
                # Somebody else may have made it while this process waited for the lock.
                if ready_at(folder, spec) is None:
                    marker = read_marker(folder)
                    if marker is None:
                        build.make(python, version)
                    else:
                        build.verify_again(marker)
        except OSError as error:
            raise EnvironmentFailure(_unwritable(spec, folder, error)) from error
        ready = ready_at(folder, spec)
        if ready is None:
            message = f"the environment of {spec.name} was made but is gone from {folder}; is something cleaning it up?"
            raise EnvironmentFailure(message)
        return ready


def _unwritable(spec: EnvironmentSpec, folder: Path, error: OSError) -> str:
    return (
        f"the environment of {spec.name} cannot be made at {folder}: {error.strerror or error} "
        f"({error.filename or folder}); free space there, or set STEPTIME_CACHE to a folder that you may write to"
    )


_OLDEST = (3, 6)
_VERIFY_LIMIT_S = 600.0


class ExistingEnvironment:
    """An interpreter in which the user has installed the framework; it is verified and never changed."""

    def find_ready(self, spec: EnvironmentSpec, cache: Path | None) -> ReadyEnvironment | None:  # noqa: ARG002 - it has none
        """Return the interpreter if it works; verified once per process."""
        try:
            return self._verified(spec)
        except EnvironmentFailure:
            return None

    def create(self, spec: EnvironmentSpec, context: BuildContext) -> ReadyEnvironment:
        """Return the interpreter; raises EnvironmentFailure, with what it said, when it does not work."""
        context.progress("verifying")
        return self._verified(spec)

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:  # noqa: ARG002 - it has none
        """Return nothing: it lies outside the cache."""
        return []

    def _verified(self, spec: EnvironmentSpec) -> ReadyEnvironment:
        if spec.interpreter is None:
            message = f"the environment of {spec.name} is an existing one, but no interpreter is given for it"
            raise EnvironmentFailure(message)
        version, found = _verified_interpreter(spec.name, spec.interpreter, spec.verify, spec.container)
        return ReadyEnvironment(spec.name, "existing", spec.interpreter, version, found, container=spec.container)


class CoreEnvironment:
    """steptime's own interpreter, for what needs nothing installed."""

    def find_ready(self, spec: EnvironmentSpec, cache: Path | None) -> ReadyEnvironment:  # noqa: ARG002 - it has none
        """Return this process's interpreter."""
        return ReadyEnvironment(spec.name, "core", Path(sys.executable), platform.python_version(), _own_packages())

    def create(self, spec: EnvironmentSpec, context: BuildContext) -> ReadyEnvironment:
        """Return this process's interpreter; raises EnvironmentFailure when the code that verifies fails."""
        if spec.verify:
            context.progress("verifying")
            _verified_interpreter(spec.name, Path(sys.executable), spec.verify)
        return self.find_ready(spec, context.cache)

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:  # noqa: ARG002 - it has none
        """Return nothing: it lies outside the cache."""
        return []


@cache
def _own_packages() -> dict[str, str]:
    return packages()


@cache
def _verified_interpreter(
    name: str, interpreter: Path, verify: str, container: tuple[str, ...] = ()
) -> tuple[str, dict[str, str]]:
    """Return the version and the packages of a working interpreter, which may be one in a container."""
    said = container_fingerprint(name, container, interpreter) if container else fingerprint_of(interpreter)
    version, where = str(said["python"]), shlex.join([*container, str(interpreter)])
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        message = f"{where} is Python {version}; {name} needs 3.6 or newer"
        raise EnvironmentFailure(message)
    if verify:
        code, answer = ask([*container, interpreter, "-I", "-c", verify], _VERIFY_LIMIT_S)
        if code:
            lines = "".join(f"\n  | {line}" for line in answer.splitlines()[-12:])
            message = f"{name} does not work in {where} (exit code {code}):{lines}\ntried: {verify.strip()}"
            raise EnvironmentFailure(message)
    return version, said["packages"]


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


class EnvironmentKind(Protocol):
    """A kind of environments.

    Requirements: ``find_ready`` starts no installer and changes nothing; ``create`` either returns a
    verified environment or raises EnvironmentFailure and leaves nothing that could be taken for one.
    """

    def find_ready(self, spec: EnvironmentSpec, cache: Path | None) -> ReadyEnvironment | None:
        """Return the environment if it is ready; ``cache`` is None on a machine that has no place for one."""
        ...

    def create(self, spec: EnvironmentSpec, context: BuildContext) -> ReadyEnvironment:
        """Return the environment, made if need be."""
        ...

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:
        """Return the folders of the cache where it may lie."""
        ...


KINDS: Mapping[str, EnvironmentKind] = {
    "venv": CachedEnvironment(Venv()),
    "uv": CachedEnvironment(Uv()),
    "existing": ExistingEnvironment(),
    "core": CoreEnvironment(),
}


def find_ready(spec: EnvironmentSpec, cache: Path | None = None) -> ReadyEnvironment | None:
    """Return the environment of ``spec`` if it is ready to be launched in; None otherwise."""
    if cache is None:
        with contextlib.suppress(EnvironmentFailure):
            cache = cache_folder()
    return _kind(spec).find_ready(spec, cache)


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

    Raises EnvironmentFailure with what failed, the place of the log and the next step.
    """
    return _kind(spec).create(spec, BuildContext(cache or cache_folder(), progress, cancelled or threading.Event()))


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


def _kind(spec: EnvironmentSpec) -> EnvironmentKind:
    if spec.kind not in KINDS:
        raise EnvironmentFailure(choices_message("kind of environment", spec.kind, KINDS))
    return KINDS[spec.kind]
