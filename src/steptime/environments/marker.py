"""``ready.json``: written last, so that an environment that has one is complete."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from steptime.environments.spec import EnvironmentSpec, ReadyEnvironment

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
    """Return the environment at ``folder`` if it is complete and was verified with the code of ``spec``."""
    content = read_marker(folder)
    if content is None or content["verified"] != verify_digest(spec):
        return None
    return ReadyEnvironment(
        name=spec.name,
        kind=content["kind"],
        interpreter=Path(content["interpreter"]),
        python_version=content["python"],
        packages=content["packages"],
        folder=folder,
    )
