"""The tools that make environments: the standard library's venv with pip, as the user has configured it, and uv.

A tool only returns the commands; ``build`` runs them.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from steptime.environments.locks import current_lock, is_locked
from steptime.environments.spec import EnvironmentSpec
from steptime.errors import EnvironmentFailure


@dataclass(frozen=True)
class Command:
    """One step of a build."""

    stage: str
    """What it does, for people."""
    command: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its own."""
    otherwise: "Command | None" = None
    """What is run when this command fails; None if a failure ends the build."""


class Tool(Protocol):
    """A tool that makes environments: it returns the commands and runs none."""

    @property
    def kind(self) -> str:
        """Its key in ``kinds.KINDS``."""
        ...

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield the commands that make the environment of ``spec`` at ``folder``, in their order."""
        ...

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that prints distributions whose requirements are not met."""
        ...


def installation(
    spec: EnvironmentSpec, version: str, install: Sequence[str | Path], variables: Mapping[str, str]
) -> Iterator[Command]:
    """Yield what installs the requirements of ``spec`` with ``install``, from their locks where there are some.

    Raises EnvironmentFailure when a lock was made from other requirements.
    """
    for path in spec.requirement_files:
        current_lock(path, spec, version)
    if spec.build_requirements.exists():
        yield Command("installing what builds", [*install, *_pinned(spec.build_requirements, spec, version)], variables)
    if spec.build_requirements.exists() or is_locked(spec):
        # Isolated builds would fetch the newest build tools instead of those that were asked for.
        install = [*install, "--no-build-isolation"]
    stage = "installing" if is_locked(spec) else "installing what no lock pins"
    command = Command(stage, [*install, *_pinned(spec.requirements, spec, version)], variables)
    for build in spec.local_builds:
        if lock := current_lock(build, spec, version):
            command = Command(stage, [*install, "--require-hashes", "-r", lock], variables, otherwise=command)
    yield command


def _pinned(requirements: Path, spec: EnvironmentSpec, version: str) -> list[str | Path]:
    lock = current_lock(requirements, spec, version)
    return ["--require-hashes", "-r", lock] if lock else ["-r", requirements]


class Uv:
    """Faster than pip, with settings of its own: those of pip do not reach it."""

    kind = "uv"

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield what makes the environment of ``spec`` at ``folder``.

        Raises EnvironmentFailure when there is no uv.
        """
        uv = _uv(spec.name)
        variables = find_links()
        yield Command(f"creating with Python {version}", [uv, "venv", "-q", "--python", python, folder], variables)
        install: list[str | Path] = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python"]
        yield from installation(spec, version, install, variables)

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that lists distributions whose requirements are not met."""
        return [_uv("it"), "pip", "check", "--python", folder / "bin" / "python"]


def find_uv() -> Path | None:
    """Return the uv on PATH, or else the one in the environment of this interpreter; None if there is none."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    found = shutil.which("uv", path=places)
    return Path(found) if found else None


def _uv(name: str) -> Path:
    uv = find_uv()
    if uv is None:
        message = (
            f"the environment of {name} is to be made with uv, which is neither on PATH nor in "
            f"{Path(sys.executable).parent}; pip install uv, or use venv"
        )
        raise EnvironmentFailure(message, fix=f"{sys.executable} -m pip install uv")
    return uv


def find_links() -> dict[str, str]:
    """Return pip's folder of wheels as a setting for uv, which reads none of pip's settings."""
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
    return {"UV_FIND_LINKS": links} if links else {}


_LAST_PIP = {"3.6": "pip<22", "3.7": "pip<24.1"}
"""The pip that comes with these may not know the names of today's wheels, nor which newer pip it can still use.

A framework with a lock names its pip in ``build-requirements.txt``.
"""


class Venv:
    """Needs nothing but Python itself."""

    kind = "venv"

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield what makes the environment of ``spec`` at ``folder``."""
        yield Command(f"creating with Python {version}", [python, "-I", "-m", "venv", folder])
        pip: list[str | Path] = [folder / "bin" / "python", "-I", "-m", "pip"]
        install = [*pip, "install", "-q", "--no-input", "--disable-pip-version-check"]
        if version in _LAST_PIP and not is_locked(spec):
            yield Command("installing a newer pip", [*install, "--upgrade", _LAST_PIP[version]])
        yield from installation(spec, version, install, {})

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that lists distributions whose requirements are not met."""
        return [folder / "bin" / "python", "-I", "-m", "pip", "check", "--disable-pip-version-check"]
