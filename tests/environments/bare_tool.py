"""A quick tool and tiny packages, so that tests can afford real environments."""

import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from steptime.environments.spec import EnvironmentSpec
from steptime.environments.tools import Command, Installer, installation

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version that this machine has for certain."""


class BareTool:
    """A tool that is quick: a real environment without an installer, so that tests can afford many."""

    kind = "bare"

    def commands(
        self,
        spec: EnvironmentSpec,  # noqa: ARG002 - nothing is installed
        python: Path,
        version: str,
        folder: Path,
    ) -> Iterator[Command]:
        """Yield the one command."""
        yield Command(f"creating with Python {version}", [python, "-I", "-m", "venv", "--without-pip", folder])

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return a command that finds none."""
        return [folder / "bin" / "python", "-c", ""]


class BorrowedPip(BareTool):
    """A tool that installs with the pip of the tests, so that an environment needs none."""

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield the commands that create the environment and install its requirements."""
        yield from super().commands(spec, python, version, folder)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        command = [*pip, "install", "-q", "--disable-pip-version-check"]
        yield from installation(spec, version, Installer("pip", command))


def write_wheel(folder: Path, name: str, version: str = "1.0", code: str = "", requires: Sequence[str] = ()) -> None:
    """Write a wheel that holds one module, into a folder for ``--find-links``."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{code}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, content)


SpecMaker = Callable[..., EnvironmentSpec]
