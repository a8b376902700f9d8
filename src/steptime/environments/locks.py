"""Lock files: the version and the hashes of everything that an installer may fetch for an environment.

``requirements.txt`` lists what is wanted, ``requirements.lock`` in the same folder the exact files. The installer
refuses every other file (``--require-hashes``). ``steptime env lock`` makes the locks with uv; they name versions and
digests, never an index, and hold for every Linux machine. A lock makes no promise about who wrote a package, only that
everybody gets the same one.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from steptime.environments.spec import EnvironmentSpec
from steptime.errors import EnvironmentFailure

_INCLUDE = re.compile(r"^(?:-r|--requirement|-c|--constraint)[ =]*(.+)$")


def requirement_lines(path: Path) -> list[str]:
    """Return the lines of a requirements file that mean something, with those of the files that it includes.

    A new comment shall not install a gigabyte again. Raises EnvironmentFailure when a file cannot be read.
    """
    lines = []
    for line in _lines_with_meaning(read_text(path)):
        if included := _INCLUDE.match(line):
            lines += requirement_lines(path.parent / included[1].strip())
        else:
            lines.append(line)
    return lines


@lru_cache(maxsize=128)
def _lines_with_meaning(text: str) -> tuple[str, ...]:
    """Return the lines without their comments, kept: a plan asks for the environment of every trial."""
    lines = (re.sub(r"(^|\s)#.*$", "", raw).strip() for raw in text.splitlines())
    return tuple(filter(None, lines))


def lock_of(path: Path) -> Path:
    """Return where the lock of a requirements file lies, or of a program that finishes an environment."""
    return path.with_suffix(".lock")


def content_lines(spec: EnvironmentSpec) -> list[str]:
    """Return the lines of all requirements of ``spec`` and of all locks: what its environment is made from."""
    lines = []
    for path in spec.requirement_files:
        lines += [path.name, *requirement_lines(path)]
    for path in filter(Path.exists, map(lock_of, spec.lockable_files)):
        lines += [path.name, *requirement_lines(path)]
    return lines


def is_locked(spec: EnvironmentSpec) -> bool:
    """Return whether an installer of ``spec`` can check what it fetches."""
    return lock_of(spec.requirements).exists()


@dataclass(frozen=True)
class LockHeader:
    """The first lines of a lock: what it was made from."""

    requirements: str
    """Digest of the requirements file's lines."""
    pythons: Sequence[str]
    """Versions that the lock holds for."""

    @classmethod
    def of(cls, requirements: Path, pythons: Iterable[str]) -> "LockHeader":
        """Return the header of a lock that is made from ``requirements`` for ``pythons``."""
        digest = hashlib.sha256("\n".join(requirement_lines(requirements)).encode()).hexdigest()
        return cls(digest[:16], sorted(pythons, key=version_numbers))

    @classmethod
    def read(cls, lock: Path) -> "LockHeader":
        """Return the header of a lock; its fields are empty where the lock lacks them."""
        said = dict(re.findall(r"^# (requirements|pythons): (.*)$", read_text(lock), re.MULTILINE))
        return cls(said.get("requirements", ""), said.get("pythons", "").split())

    def __str__(self) -> str:
        """Return the lines of the lock."""
        return (
            "# Made by `steptime env lock`; not to be edited by hand.\n"
            f"# requirements: {self.requirements}\n"
            f"# pythons: {' '.join(self.pythons)}\n"
        )


def current_lock(requirements: Path, spec: EnvironmentSpec, version: str) -> Path | None:
    """Return the lock of a requirements file; None when there is none, or none for Python ``version``.

    Raises EnvironmentFailure when the lock was made from other requirements, or lacks a Python of ``spec``.
    """
    lock = lock_of(requirements)
    if not lock.exists():
        return None
    made, wanted = LockHeader.read(lock), LockHeader.of(requirements, spec.pythons)
    optional = requirements in spec.local_builds
    if made.requirements != wanted.requirements or not (optional or set(wanted.pythons) <= set(made.pythons)):
        message = (
            f"{lock} was made from other requirements than {requirements.name} names now, or for other Pythons than "
            f"{', '.join(wanted.pythons)}; make it again: steptime env lock {spec.name}"
        )
        raise EnvironmentFailure(message)
    return lock if version in made.pythons else None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version as ``3.11``, to sort by."""
    return tuple(map(int, version.split(".")))


def read_text(path: Path) -> str:
    """Return the text of a requirements file or a lock; raises EnvironmentFailure when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"the requirements {path} cannot be read ({error.strerror}); is the installation complete?"
        raise EnvironmentFailure(message) from error
