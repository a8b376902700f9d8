"""The user's cache folder, and the folder of each environment in it.

A file ``ready.json`` in an environment's folder is written last, so that an environment that has one is complete.
"""

import hashlib
import json
import os
import platform
import stat
import sys
from pathlib import Path
from typing import Any

from steptime.environments.locks import content_lines
from steptime.environments.spec import EnvironmentSpec, ReadyEnvironment
from steptime.errors import EnvironmentFailure
from steptime.file_name import path_mistake
from steptime.foreign_writers import writers_besides_owner


def cache_folder() -> Path:
    """Return where steptime keeps what can be made again: ``STEPTIME_CACHE``, or the XDG cache folder.

    The folder may not exist yet. Raises EnvironmentFailure where it would be in a home folder and there is none.
    """
    own, shared = os.environ.get("STEPTIME_CACHE"), os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(own).expanduser().absolute() if own else Path(shared).expanduser().absolute() / "steptime"
    except RuntimeError as error:
        message = "no home folder was found to keep environments in: set STEPTIME_CACHE to a folder, or HOME"
        raise EnvironmentFailure(message, "export STEPTIME_CACHE=/path/to/a/folder") from error


def wheels_folder(cache: Path) -> Path:
    """Return the folder that holds the wheels that were built here, for all environments of a cache."""
    return cache / "wheels"


def environments_folder(cache: Path) -> Path:
    """Return the folder that holds all environments of a cache."""
    return cache / "environments"


def address(spec: EnvironmentSpec, python: str, cache: Path) -> Path:
    """Return the folder of ``spec`` made with Python ``python`` (as ``3.11``).

    The name holds a hash of everything that the environment is made from, so that a changed requirement or lock is
    another environment and two checkouts share one. Raises EnvironmentFailure when the requirements cannot be read, and
    where the path of the cache cannot be written down.
    """
    if mistake := path_mistake(cache):
        message = f"the path of the cache {mistake}; set STEPTIME_CACHE to another folder"
        raise EnvironmentFailure(message)
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

    Returns a sentence with the next step; None if no other user may. The owner may be somebody else: who uses another's
    cache trusts its owner. In a folder such as /tmp others rename nothing.
    """
    cache = folder.parent.parent
    for place in (cache, folder.parent, folder):
        try:
            found = place.stat()
        except OSError:
            continue
        if found.st_mode & stat.S_ISVTX:
            continue
        if who := writers_besides_owner(place, found):
            return (
                f"{place} may be written by {who}, who could put code into what you run; make sure that they did "
                f"not, then take that right away (chmod -R go-w {cache}), or set STEPTIME_CACHE to another folder"
            )
    return None


SCHEMA = 1
"""1: name, kind, folder, interpreter, python, platform, packages, conflicts, verified, created_at, seconds, bytes.

Newer ones also have installers: what installed the packages, as ``["uv 0.9.2"]``.
"""
_READ = {"folder": str, "interpreter": str, "kind": str, "packages": dict, "python": str, "verified": str}
"""The keys that are read here, with their types."""
_NAME = "ready.json"


def verify_digest(spec: EnvironmentSpec) -> str:
    """Return what identifies a verification code."""
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
    """Return the marker of the complete environment at ``folder``, and None if there is none.

    Its ``folder`` may be another path to the same folder (a link, a bind mount): scripts in it name that path.

    Raises EnvironmentFailure, with the next step, when the environment is complete but cannot be used by this path, on
    this machine or by this version of steptime; others may use it.
    """
    try:
        text = (folder / _NAME).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _unusable(folder, f"its {_NAME} cannot be read ({error})") from error
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _unusable(folder, f"its {_NAME} is damaged ({error})") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise _unusable(folder, f"its {_NAME} is not of schema {SCHEMA}, which this version of steptime reads")
    if wrong := [key for key, kind in _READ.items() if not isinstance(content.get(key), kind)]:
        raise _unusable(folder, f"its {_NAME} is damaged ({', '.join(wrong)})")
    made_as, interpreter = Path(content["folder"]), Path(content["interpreter"])
    if problem := _other_place(made_as, folder):
        other = f"{made_as.parent.parent} or another folder"
        raise _unusable(folder, f"it was made as {made_as}, which its scripts name and which {problem}", other)
    if made_as != folder and (refusal := foreign_writers(made_as)):
        raise EnvironmentFailure(refusal)
    try:
        interpreter.stat()
    except OSError as error:
        why = f"its Python, {os.path.realpath(interpreter)}, cannot be used here ({error.strerror})"
        raise _unusable(folder, why) from error
    return content


def _other_place(path: Path, folder: Path) -> str | None:
    """Say why ``path`` does not lead to ``folder``; None if it does: links and bind mounts share device and inode."""
    try:
        return None if path.samefile(folder) else "is another folder here"
    except OSError as error:
        return f"cannot be reached here ({error.strerror})"


def _unusable(folder: Path, why: str, other: str = "another folder") -> EnvironmentFailure:
    fix = f"steptime env remove {folder.name}"
    return EnvironmentFailure(
        f"the environment at {folder} is complete but cannot be used: {why}. It is kept, because others may use it; "
        f"set STEPTIME_CACHE to {other}, or remove it: {fix}",
        fix=fix,
    )


def ready_at(folder: Path, spec: EnvironmentSpec) -> ReadyEnvironment | None:
    """Return the environment at ``folder`` if it is complete and was verified with the code of ``spec``.

    One that cannot be used or that others may write is not ready; ``kinds.create`` reports it.
    """
    try:
        content = read_marker(folder)
    except EnvironmentFailure:
        return None
    if content is None or foreign_writers(folder) or content["verified"] != verify_digest(spec):
        return None
    return ReadyEnvironment(
        name=spec.name,
        kind=content["kind"],
        interpreter=Path(content["interpreter"]),
        python_version=content["python"],
        packages=content["packages"],
        folder=Path(content["folder"]),
    )
