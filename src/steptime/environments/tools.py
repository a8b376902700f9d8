"""The tools that make environments: the standard library's venv with pip and, where it is had, uv.

A tool only returns the commands; ``build`` runs them.

uv installs several times faster than pip and links files of one cache instead of writing them again. It reads none of
pip's settings, so that these are passed on; with one that uv does not have, pip installs, as it does what uv fails to.
Pythons before 3.8, which uv no longer supports, and requirements without a lock, for which it would choose versions by
rules of its own, stay with pip. So do source releases (Chainer) below a constraint of pip's: uv takes none together
with hashes, and a trial run of it would have to build them.
"""

import ast
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from steptime.environments.locks import current_lock, is_locked, version_numbers
from steptime.environments.spec import EnvironmentSpec
from steptime.environments.subprocesses import ask
from steptime.errors import EnvironmentFailure

GET_UV = "pip install 'steptime[uv]'"


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
    installer: str | None = None
    """What installs packages, as ``pip`` or ``uv 0.9.2``; None if the command installs none."""


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


@dataclass(frozen=True)
class Installer:
    """A program that installs the packages of a requirements file or of a lock."""

    name: str
    command: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    allows: Callable[[Path], bool] = lambda _lock: True
    """Whether it may install a lock."""

    def installs(self, stage: str, arguments: Sequence[str | Path], otherwise: Command | None = None) -> Command:
        """Return the command that installs what ``arguments`` name."""
        return Command(stage, [*self.command, *arguments], self.variables, otherwise, self.name)


def installation(
    spec: EnvironmentSpec, version: str, installer: Installer, faster: Installer | None = None
) -> Iterator[Command]:
    """Yield what installs the requirements of ``spec``, from their locks where there are some.

    Args:
        spec: with the requirements.
        version: of Python, as ``3.11``.
        installer: installs all.
        faster: is tried before ``installer`` on what a lock pins.

    Raises EnvironmentFailure when a lock was made from other requirements.
    """
    for path in spec.requirement_files:
        current_lock(path, spec, version)

    def install(stage: str, path: Path, *options: str, otherwise: Command | None = None) -> Command:
        lock = current_lock(path, spec, version)
        pinned: list[str | Path] = ["--require-hashes", "-r", lock] if lock else ["-r", path]
        arguments = [*options, *pinned]
        command = installer.installs(stage, arguments, otherwise)
        return faster.installs(stage, arguments, command) if faster and lock and faster.allows(lock) else command

    if spec.build_requirements.exists():
        yield install("installing what builds", spec.build_requirements)
    # Isolated builds would fetch the newest build tools instead of those that were asked for.
    options = ["--no-build-isolation"] if spec.build_requirements.exists() or is_locked(spec) else []
    command = install("installing" if is_locked(spec) else "installing what no lock pins", spec.requirements, *options)
    for build in spec.local_builds:
        if current_lock(build, spec, version):
            command = install(command.stage, build, *options, otherwise=command)
    yield command


class Uv:
    """Faster than pip; those of pip's settings that it has reach it."""

    kind = "uv"

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield what makes the environment of ``spec`` at ``folder``.

        Raises EnvironmentFailure when there is no uv.
        """
        uv = _uv(spec.name)
        variables = find_links()
        yield Command(f"creating with Python {version}", [uv, "venv", "-q", "--python", python, folder], variables)
        settings, _ = settings_for_uv(pip_settings(python))
        yield from installation(spec, version, uv_installer(uv, folder, {**variables, **settings}))

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
            f"{Path(sys.executable).parent}; {GET_UV}, or use venv"
        )
        raise EnvironmentFailure(message, fix=GET_UV)
    return uv


def find_links() -> dict[str, str]:
    """Return pip's folder of wheels as a setting for uv, which reads none of pip's settings."""
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
    return {"UV_FIND_LINKS": links} if links else {}


def uv_installer(uv: Path, folder: Path, variables: Mapping[str, str], constraints: Sequence[str] = ()) -> Installer:
    """Return uv, which installs into the environment at ``folder``.

    It compiles as pip does: else the first launch would. Of several indexes, it takes a file from any, as pip does.
    uv takes no constraint together with hashes, so that a lock is tried against ``constraints`` before.
    """
    python = folder / "bin" / "python"
    command: list[str | Path] = [uv, "pip", "install", "-q", "--compile-bytecode", "--python", python]
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", **variables}

    def allows(lock: Path) -> bool:
        files = [f"--constraint={path}" for path in constraints]
        trial = [*command, "--dry-run", "--no-deps", "--no-build", *files, "-r", lock]
        return not files or ask(trial, _TRIAL_LIMIT_S, None, **variables)[0] == 0

    _, answer = ask([uv, "--version"], _TRIAL_LIMIT_S)
    return Installer(" ".join(answer.split()[:2]), command, variables, allows)


_TRIAL_LIMIT_S = 120.0
_SAME_IN_UV = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "no-cache-dir": "UV_NO_CACHE",
}
"""Settings of pip that uv has under these names."""
_FLAGS = {"no-index", "no-cache-dir"}
_WITHOUT_EFFECT = {
    *("disable-pip-version-check", "no-python-version-warning", "no-input", "quiet", "verbose", "progress-bar"),
    *("no-color", "no-warn-script-location", "no-warn-conflicts", "root-user-action", "log", "exists-action"),
    *("cache-dir", "compile", "user", "break-system-packages", "require-virtualenv", "require-hashes"),
    *("pre", "prefer-binary", "constraint", "config-file"),
}
"""Settings of pip that change nothing for a lock in an environment of its own, and the one that is tried before."""


def pip_settings(python: Path) -> dict[str, str]:
    """Return pip's settings for installing, by name, from its files and variables; empty where ``python`` has no pip.

    Of several sources of a setting, the one that pip takes: its variables, then the command's section, then the rest.
    """
    code, answer = ask([python, "-I", "-m", "pip", "config", "list", "--disable-pip-version-check"], _TRIAL_LIMIT_S)
    settings: dict[str, str] = {}
    if code:
        return settings
    entries = [line.partition("=") for line in answer.splitlines()]
    for section in ("global.", "install.", ":env:."):
        for key, _, value in entries:
            if key.startswith(section) and value[:1] in {"'", '"'}:
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def settings_for_uv(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return pip's settings as variables for uv, and the names of those that uv does not have.

    A variable of uv that the user has set stays.
    """
    variables: dict[str, str] = {}
    unknown = []
    for name, value in settings.items():
        if name == "proxy":
            variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), value)
        elif name in _FLAGS:
            variables[_SAME_IN_UV[name]] = str(value.lower() in {"1", "true", "yes", "on"}).lower()
        elif name in _SAME_IN_UV:
            # In pip spaces separate several; in uv commas do where a path may be meant.
            variables[_SAME_IN_UV[name]] = ("," if name == "find-links" else " ").join(value.split())
        elif name not in _WITHOUT_EFFECT:
            unknown.append(name)
    return {name: value for name, value in variables.items() if name[:3] != "UV_" or name not in os.environ}, unknown


_OLDEST_OF_UV = (3, 8)
_LAST_PIP = {"3.6": "pip<22", "3.7": "pip<24.1"}
"""The pip that comes with these may not know the names of today's wheels, nor which newer pip it can still use.

A framework with a lock names its pip in ``build-requirements.txt``.
"""


def _beside_pip(spec: EnvironmentSpec, version: str, folder: Path) -> Installer | None:
    """Return uv for an environment whose pip has been installed; None if pip is to install all."""
    uv = find_uv()
    if uv is None or not is_locked(spec) or version_numbers(version) < _OLDEST_OF_UV:
        return None
    settings = pip_settings(folder / "bin" / "python")
    variables, unknown = settings_for_uv(settings)
    return None if unknown else uv_installer(uv, folder, variables, settings.get("constraint", "").split())


class Venv:
    """Needs nothing but Python itself, and installs what locks pin with uv where it is had."""

    kind = "venv"

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield what makes the environment of ``spec`` at ``folder``."""
        yield Command(f"creating with Python {version}", [python, "-I", "-m", "venv", folder])
        pip: list[str | Path] = [folder / "bin" / "python", "-I", "-m", "pip"]
        install = [*pip, "install", "-q", "--no-input", "--disable-pip-version-check"]
        if version in _LAST_PIP and not is_locked(spec):
            yield Command("installing a newer pip", [*install, "--upgrade", _LAST_PIP[version]], installer="pip")
        faster = _beside_pip(spec, version, folder)
        yield from installation(spec, version, Installer("pip", install), faster)

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that lists distributions whose requirements are not met."""
        return [folder / "bin" / "python", "-I", "-m", "pip", "check", "--disable-pip-version-check"]
