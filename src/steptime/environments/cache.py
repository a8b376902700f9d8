"""The user's cache folder, and the folder of each environment in it.

A file ``ready.json`` in an environment's folder is written last, so that an environment that has one is complete.
"""

import grp
import hashlib
import json
import os
import platform
import pwd
import stat
import sys
from pathlib import Path
from typing import Any

from steptime.environments.locks import content_lines
from steptime.environments.spec import EnvironmentSpec, ReadyEnvironment


def cache_folder() -> Path:
    """Return where steptime keeps what can be made again: ``STEPTIME_CACHE``, or the XDG cache folder.

    The folder may not exist yet.
    """
    if own := os.environ.get("STEPTIME_CACHE"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(shared).expanduser().absolute() / "steptime"


def wheels_folder(cache: Path) -> Path:
    """Return the folder that holds the wheels that were built here, for all environments of a cache."""
    return cache / "wheels"


def environments_folder(cache: Path) -> Path:
    """Return the folder that holds all environments of a cache."""
    return cache / "environments"


def address(spec: EnvironmentSpec, python: str, cache: Path) -> Path:
    """Return the folder of ``spec`` made with Python ``python`` (as ``3.11``).

    The name holds a hash of everything that the environment is made from, so that a changed requirement or lock is
    another environment and two checkouts share one. Raises EnvironmentFailure when the requirements cannot be read.
    """
    parts = [
        spec.kind,
        python,
        sys.platform,
        platform.machine(),
        *content_lines(spec),
    ]
    if spec.finish:
        parts += [Path(spec.finish[0]).read_text(encoding="utf-8"), *spec.finish[1:], spec.program]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return environments_folder(cache) / f"{spec.name}-{digest}"


def foreign_writers(folder: Path) -> str | None:
    """Say who besides its owner may write to the environment at ``folder``, to its parent or to the cache.

    Returns a sentence with the next step; None where nobody may. The owner may be somebody else: who uses another's
    cache trusts its owner. A group of its owner alone is nobody, and in a folder such as /tmp others rename nothing.
    """
    cache = folder.parent.parent
    for place in (cache, folder.parent, folder):
        try:
            found = place.stat()
        except OSError:
            continue
        if found.st_mode & stat.S_ISVTX:
            continue
        if found.st_mode & stat.S_IWOTH:
            who = "everyone"
        elif found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid):
            who = f"the group {_name_of(found.st_gid)}"
        else:
            continue
        return (
            f"{place} may be written by {who}, who could put code into what you run; see that nobody has, then take "
            f"that right away (chmod -R go-w {cache}), or set STEPTIME_CACHE to another folder"
        )
    return None


def _is_private(group: int, user: int) -> bool:
    """Whether a group is that of one user alone, as many systems make them."""
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return owner.pw_gid == group and found.gr_name == owner.pw_name and set(found.gr_mem) <= {owner.pw_name}


def _name_of(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


SCHEMA = 1
"""1: name, kind, folder, interpreter, python, platform, packages, conflicts, verified, created_at, seconds, bytes."""
_NAME = "ready.json"


def verify_digest(spec: EnvironmentSpec) -> str:
    """Return what tells one verification code from another."""
    return hashlib.sha256(spec.verify.encode()).hexdigest()[:16]


def write_marker(folder: Path, content: dict[str, Any]) -> None:
    """Declare the environment at ``folder`` ready; either the whole marker is on the disk or none."""
    partial = folder / f"{_NAME}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump({"schema": SCHEMA, "folder": str(folder), **content}, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / _NAME)


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Return the marker of the complete environment at ``folder``.

    None when there is none, when it cannot be read, when the folder was moved (scripts in it name their old place)
    or when the Python that it was made with is gone.
    """
    try:
        content = json.loads((folder / _NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or content.get("folder") != str(folder):
        return None
    return content if Path(content["interpreter"]).exists() else None


def ready_at(folder: Path, spec: EnvironmentSpec) -> ReadyEnvironment | None:
    """Return the environment at ``folder`` if it is complete and was verified with the code of ``spec``.

    One that others may write is not ready; ``kinds.create`` says so.
    """
    content = read_marker(folder)
    if content is None or foreign_writers(folder) or content["verified"] != verify_digest(spec):
        return None
    return ReadyEnvironment(
        name=spec.name,
        kind=content["kind"],
        interpreter=Path(content["interpreter"]),
        python_version=content["python"],
        packages=content["packages"],
        folder=folder,
    )
