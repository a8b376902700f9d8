"""The inventory of the cache: its environments, and their removal."""

import re
import shutil
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from steptime.environments.build import idle, log_of, size_of
from steptime.environments.cache import cache_folder, environments_folder, read_marker
from steptime.errors import EnvironmentFailure

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
            freed += size_of(folder)
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
