"""The kind ``uv``: the same environment made by uv, where the user has it and asks for it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from steptime.environments.spec import EnvironmentSpec
from steptime.environments.tools import Command
from steptime.errors import EnvironmentFailure


class Uv:
    """Faster than pip, with settings of its own: those of pip do not reach it."""

    kind = "uv"

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield what makes the environment of ``spec`` at ``folder``.

        Raises EnvironmentFailure when there is no uv.
        """
        uv = _uv(spec.name)
        variables = _find_links()
        yield Command(f"creating with Python {version}", [uv, "venv", "-q", "--python", python, folder], variables)
        install: list[str | Path] = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python"]
        if spec.build_requirements.exists():
            yield Command("installing what builds", [*install, "-r", spec.build_requirements], variables)
            install.append("--no-build-isolation")
        yield Command("installing", [*install, "-r", spec.requirements], variables)

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that lists distributions whose requirements are not met."""
        return [_uv("it"), "pip", "check", "--python", folder / "bin" / "python"]


def _uv(name: str) -> str:
    uv = shutil.which("uv")
    if uv is None:
        message = f"the environment of {name} is to be made with uv, which is not on the PATH; install uv, or use venv"
        raise EnvironmentFailure(message)
    return uv


def _find_links() -> dict[str, str]:
    """Hand pip's folder of wheels on to uv, which reads none of pip's settings."""
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
    return {"UV_FIND_LINKS": links} if links else {}
