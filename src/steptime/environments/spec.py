"""The specification of an environment, the settings of its build, and the environment that is ready."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steptime.errors import EnvironmentFailure
from steptime.file_name import file_name_mistake

Progress = Callable[[str], None]
"""Called with each stage: ``creating``, ``installing``, ``verifying``, ``ready in 41 s``."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """The specification by which an environment is found or made."""

    name: str
    """Of the framework, or of what else needs it; a valid file name."""
    requirements: Path
    """For pip's ``-r``. A ``build-requirements.txt`` next to it is installed first, and packages that must be built
    are then built with it."""
    pythons: Sequence[str]
    """Versions that would do, preferred first, as ``3.11``."""
    verify: str = ""
    """Python code that fails where the environment does not work."""
    kind: str = "venv"
    """A key of ``kinds.KINDS``."""
    interpreter: Path | None = None
    """The user's own, for the kind ``existing``."""
    container: tuple[str, ...] = ()
    """The words by which that interpreter is started in a container, of which it is a path; empty without one."""
    finish: Sequence[str] = ()
    """A program for what pip cannot install, and its arguments; it runs in the environment's Python after pip has."""
    program: str = "bin/python"
    """The interpreter within the environment's folder, where ``finish`` makes another than the usual."""

    def __post_init__(self) -> None:
        if mistake := file_name_mistake(self.name):
            message = f"an environment cannot have this name: {mistake}"
            raise EnvironmentFailure(message)

    @property
    def build_requirements(self) -> Path:
        """The file that is installed first, where it exists."""
        return self.requirements.with_name("build-requirements.txt")

    @property
    def requirement_files(self) -> list[Path]:
        """All requirements files, each of which may have a lock: in the folders of ``requirements`` and of ``finish``.

        ``requirements.NAME.txt`` asks for a local build (as ``torch==2.13.0+cpu``) that only some indexes have.
        ``requirements-cuda.txt``, with its ``….txt`` of the same first name, is another environment's.
        """
        folders = [self.requirements.parent, *(Path(program).parent for program in self.finish[:1])]
        found = {path for folder in folders for path in folder.glob("*requirements*.txt") if self._uses(path)}
        return sorted({self.requirements, *found})

    def _uses(self, path: Path) -> bool:
        """Whether a requirements file is not one of another environment that is made from the same folder."""
        stem = path.name.split(".")[0]
        ours = self.requirements.stem
        return stem == ours if stem.startswith("requirements") else "cuda" not in stem or "cuda" in ours

    @property
    def lockable_files(self) -> list[Path]:
        """The requirements files, and the program in ``finish`` if it has a lock of what it downloads itself."""
        programs = [path for path in map(Path, self.finish[:1]) if path.with_suffix(".lock").exists()]
        return [*self.requirement_files, *programs]

    @property
    def local_builds(self) -> list[Path]:
        """The files ``requirements.NAME.txt``, which are tried before ``requirements``."""
        return sorted(self.requirements.parent.glob(f"{self.requirements.stem}.*.txt"))


@dataclass(frozen=True)
class ReadyEnvironment:
    """An environment that was verified and can be launched in."""

    name: str
    kind: str
    interpreter: Path
    python_version: str
    """As ``3.11.7``."""
    packages: Mapping[str, str]
    """Versions of the installed distributions, by normalised name (lower case, hyphens)."""
    folder: Path | None = None
    """Where it lies; None for interpreters that steptime did not make."""
    container: tuple[str, ...] = ()
    """The words by which the interpreter is started in a container, of which it is a path; empty without one."""


@dataclass(frozen=True)
class BuildContext:
    """The cache, the progress and the cancellation of a build."""

    cache: Path
    progress: Progress = lambda _stage: None
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set to stop installers that run in other threads."""
