"""The user's cache folder, and which folder of it belongs to which environment."""

import hashlib
import os
import platform
import re
import sys
from pathlib import Path

from steptime.environments.spec import EnvironmentSpec
from steptime.errors import EnvironmentFailure

_INCLUDE = re.compile(r"^(?:-r|--requirement|-c|--constraint)[ =]*(.+)$")


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

    The name holds a hash of everything that the environment is made from, so that a changed requirement is another
    environment and two checkouts share one. Raises EnvironmentFailure when the requirements cannot be read.
    """
    parts = [
        spec.kind,
        python,
        sys.platform,
        platform.machine(),
        "\n".join(requirement_lines(spec.requirements)),
        "\n".join(requirement_lines(spec.build_requirements)) if spec.build_requirements.exists() else "",
    ]
    if spec.finish:
        parts += [Path(spec.finish[0]).read_text(encoding="utf-8"), *spec.finish[1:], spec.program]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return environments_folder(cache) / f"{spec.name}-{digest}"


def requirement_lines(path: Path) -> list[str]:
    """Return the lines of a requirements file that mean something, with those of the files that it includes.

    A new comment shall not install a gigabyte again.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"the requirements {path} cannot be read ({error.strerror}); is the installation complete?"
        raise EnvironmentFailure(message) from error
    lines = []
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        if included := _INCLUDE.match(line):
            lines += requirement_lines(path.parent / included[1].strip())
        else:
            lines.append(line)
    return lines
