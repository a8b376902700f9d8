"""The kind ``venv``: the standard library's venv, filled by pip as the user has configured it."""

from collections.abc import Iterator
from pathlib import Path

from steptime.environments.spec import EnvironmentSpec
from steptime.environments.tools import Command

_LAST_PIP = {"3.6": "pip<22", "3.7": "pip<24.1"}
"""The pip that comes with these may not know the names of today's wheels, nor which newer pip it can still use."""


class Venv:
    """Needs nothing but Python itself."""

    kind = "venv"

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield what makes the environment of ``spec`` at ``folder``."""
        yield Command(f"creating with Python {version}", [python, "-I", "-m", "venv", folder])
        pip: list[str | Path] = [folder / "bin" / "python", "-I", "-m", "pip"]
        install = [*pip, "install", "-q", "--no-input", "--disable-pip-version-check"]
        if version in _LAST_PIP:
            yield Command("installing a newer pip", [*install, "--upgrade", _LAST_PIP[version]])
        if spec.build_requirements.exists():
            yield Command("installing what builds", [*install, "-r", spec.build_requirements])
            # Isolated builds would fetch the newest build tools instead of those that were asked for.
            install.append("--no-build-isolation")
        yield Command("installing", [*install, "-r", spec.requirements])

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that lists distributions whose requirements are not met."""
        return [folder / "bin" / "python", "-I", "-m", "pip", "check", "--disable-pip-version-check"]
