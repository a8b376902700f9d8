"""The renewal of lock files by uv, and what it changes."""

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.environments.locks import LockHeader, lock_of, read_text, version_numbers
from steptime.environments.spec import EnvironmentSpec
from steptime.environments.subprocesses import ask
from steptime.environments.tools import GET_UV, find_links, find_uv
from steptime.errors import EnvironmentFailure

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._+-]*)==(?P<version>[^\s;\\]+)[^\\]*\\?$")
_LIMIT_S = 900.0
"""For one run of uv, or of a program that asks a distribution's archive."""


@dataclass(frozen=True)
class Change:
    """The difference of one package between two locks."""

    package: str
    before: str
    """Versions, joined by commas; empty where the old lock lacks the package."""
    after: str

    @property
    def kind(self) -> str:
        """``added``, ``removed``, ``changed``, or ``other files`` where only the hashes differ."""
        if not self.before:
            return "added"
        if not self.after:
            return "removed"
        return "changed" if self.before != self.after else "other files"


class LockRenewal:
    """New locks, each made once: several environments share a file where their frameworks share a library."""

    def __init__(self, *, keep: bool = False) -> None:
        """Begin; with ``keep`` a new lock has the old one's versions where the requirements allow them."""
        self._keep = keep
        self._made: dict[Path, str] = {}

    def knows(self, path: Path) -> bool:
        """Return whether the lock of ``path`` has been made."""
        return lock_of(path).resolve() in self._made

    def renew(self, path: Path, spec: EnvironmentSpec) -> list[Change]:
        """Make the lock of one of ``spec.lockable_files`` and return what changes; nothing is written.

        Raises EnvironmentFailure when there is no uv, or no versions fit together.
        """
        lock = lock_of(path)
        before = read_text(lock) if lock.exists() else ""
        made = self._requirements(path, spec, before) if path.suffix == ".txt" else _finish(path)
        self._made[lock.resolve()] = made
        return changes(before, made)

    def write(self, path: Path) -> None:
        """Replace the lock of ``path`` by the one that was made; raises OSError."""
        lock = lock_of(path).resolve()
        if not self._made[lock]:
            return
        partial = lock.with_suffix(".partial")
        partial.write_text(self._made[lock], encoding="utf-8")
        partial.rename(lock)

    def _requirements(self, path: Path, spec: EnvironmentSpec, before: str) -> str:
        pythons = list(spec.pythons)
        if path in spec.local_builds:
            # Such a build exists for some Pythons only, and only where pip is configured to find it.
            pythons = [version for version in pythons if _compiled(path, spec, [version], kept="")[0]]
            if not pythons:
                return before
        body, said = _compiled(path, spec, pythons, kept=before if self._keep else "")
        if not body:
            message = f"no lock of {path} can be made: {said}"
            raise EnvironmentFailure(message)
        return f"{LockHeader.of(path, pythons)}{body}"


def changes(before: str, after: str) -> list[Change]:
    """Return what differs between the texts of two locks, by package."""
    versions = [_versions(text) for text in (before, after)]
    hashes = [_hashes(text) for text in (before, after)]
    names = sorted(set(versions[0]) | set(versions[1]))
    return [
        Change(name, *(", ".join(each.get(name, ())) for each in versions))
        for name in names
        if versions[0].get(name) != versions[1].get(name) or hashes[0].get(name) != hashes[1].get(name)
    ]


def _finish(program: Path) -> str:
    """Return the lock that a program which finishes an environment makes of what it downloads itself."""
    code, said = ask([sys.executable, "-I", program, "--lock"], _LIMIT_S)
    if code:
        message = f"no lock of {program} can be made: {said}"
        raise EnvironmentFailure(message)
    return said[said.index("# Made by") :] + "\n"


_PROJECT = """[project]
name = "locked"
version = "0"
requires-python = ">={oldest}"
[tool.uv]
environments = [{environments}]
"""


def _compiled(requirements: Path, spec: EnvironmentSpec, pythons: Sequence[str], kept: str) -> tuple[str, str]:
    """Return the pins and hashes for ``pythons``, or nothing and what uv said."""
    uv = find_uv()
    if uv is None:
        message = f"uv makes the locks of environments, and is not installed; get it by: {GET_UV}"
        raise EnvironmentFailure(message)
    oldest = min(pythons, key=version_numbers)
    environments = (f"\"python_full_version == '{each}.*' and sys_platform == 'linux'\"" for each in pythons)
    build: list[str | Path] = (
        ["--build-constraints", spec.build_requirements] if spec.build_requirements.exists() else []
    )
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch, "pyproject.toml")
        project.write_text(_PROJECT.format(oldest=oldest, environments=", ".join(environments)), encoding="utf-8")
        lock = Path(scratch, "requirements.lock")
        if kept:
            lock.write_text(kept, encoding="utf-8")
        shape = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", oldest]
        command: list[str | Path] = [
            uv,
            "pip",
            "compile",
            "-q",
            "--directory",
            scratch,
            *shape,
            *build,
            "-o",
            lock,
            requirements,
        ]
        variables = find_links() if requirements in spec.local_builds else {"UV_FIND_LINKS": ""}
        code, said = ask(command, _LIMIT_S, **variables)
        return ("", said) if code else (lock.read_text(encoding="utf-8"), said)


def _versions(text: str) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for name, version in _pins(text):
        found.setdefault(name, set()).add(version)
    return {name: sorted(versions) for name, versions in found.items()}


def _hashes(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if pin := _PIN.match(line):
            name = pin["name"]
        found.setdefault(name, set()).update(re.findall(r"--hash=(\S+)", line))
    return found


def _pins(text: str) -> list[tuple[str, str]]:
    return [(each["name"], each["version"]) for each in filter(None, map(_PIN.match, text.splitlines()))]
