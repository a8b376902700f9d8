"""The specification of an environment, the settings of its build, and the environment that is ready.

Pythons of a wanted version on this machine, or the command that gets one.

Each candidate is run before it is chosen.
"""

import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from steptime.environments.subprocesses import ask
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


def how_to_get(version: str, refused: Iterable[str]) -> list[str]:
    """Return commands, any of which gets a Python ``version``, likeliest first.

    Args:
        version: as ``3.9``.
        refused: what was wrong with the Pythons that were found; Debian's without ``venv`` are completed.
    """
    commands = []
    if shutil.which("apt-get"):
        incomplete = any(f"python{version}: it lacks the modules" in refusal for refusal in refused)
        if incomplete or apt_has(f"python{version}"):
            commands.append(f"sudo apt-get install python{version} python{version}-venv")
    commands.append(f"pyenv install {version}")
    if version != "3.6":  # of which uv has none to download
        commands.append(f"uv python install {version}")
    if shutil.which("conda"):
        commands.append(f"conda create -n python{version} python={version}")
    return commands


def apt_has(package: str) -> bool:
    """Whether this machine's apt knows the package and could install it."""
    if not shutil.which("apt-cache"):
        return False
    code, said = ask(["apt-cache", "policy", package], 20.0)
    return code == 0 and re.search(r"Candidate: (?!\(none\))\S", said) is not None


_TIME_LIMIT_S = 60.0
_QUESTION = (
    "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable); "
    "import venv, ensurepip; print('complete')"
)


def choose_python(name: str, versions: Sequence[str]) -> tuple[Path, str]:
    """Return an interpreter and its version, the first of ``versions`` (as ``3.11``) that this machine has.

    Raises EnvironmentFailure, naming the environment, what was tried and how to get a Python that would do.
    """
    refused: list[str] = []
    for version in versions:
        found, refusals = _first_usable(version, tuple(candidates(version)))
        if found:
            return found, version
        refused += refusals
    tried = "".join(f"\n  tried {refusal}" for refusal in refused)
    commands = [command for version in versions[:1] for command in how_to_get(version, refused)]
    advice = "".join(f"\n  {command}" for command in commands)
    message = (
        f"no Python for the environment of {name}: it needs {' or '.join(versions)}{tried}\n"
        f"Get one with one of these, then run 'steptime env create {name}':{advice}\n"
        f"What does not need {name} still runs."
    )
    raise EnvironmentFailure(message, fix=commands[0])


def find_python(version: str) -> Path | None:
    """Return a Python of the wanted version, as ``3.11``, that can make environments; None if there is none.

    The answer is kept for the life of this process.
    """
    return _first_usable(version, tuple(candidates(version)))[0]


def candidates(version: str) -> list[Path]:
    """Return the places where a Python ``version`` may be, likeliest first; only files that exist."""
    name = f"python{version}"
    found: dict[Path, None] = {}
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        found[Path(sys.executable)] = None
    for folder in _folders():
        path = folder / name
        if os.access(path, os.X_OK) and path.is_file():
            found[path] = None
    return list(found)


def _folders() -> Iterator[Path]:
    yield from (Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part)
    home = _home()
    for root in (os.environ.get("PYENV_ROOT"), *(each / ".pyenv" for each in home)):
        if root:
            yield from _newest_first(Path(root).glob("versions/*/bin"))
    own = os.environ.get("XDG_DATA_HOME")
    shared = [Path(own)] if own else [each / ".local/share" for each in home]
    for root in (os.environ.get("UV_PYTHON_INSTALL_DIR"), *(each / "uv/python" for each in shared)):
        if root:
            yield from _newest_first(Path(root).glob("*/bin"))
    conda_names = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda")
    conda_roots = [os.environ.get("CONDA_PREFIX"), os.environ.get("MAMBA_ROOT_PREFIX")]
    for root in (*conda_roots, *(each / name for each in home for name in conda_names), "/opt/conda"):
        if root:
            yield Path(root) / "bin"
            yield from _newest_first(Path(root).glob("envs/*/bin"))
    yield from (Path("/usr/local/bin"), Path("/usr/bin"))
    for pattern in ("*/bin", "python/*/bin"):
        yield from _newest_first(Path("/opt").glob(pattern))


def _home() -> list[Path]:
    """Return the user's home folder, if there is one: a container may run as a user that it does not know."""
    try:
        return [Path.home()]
    except RuntimeError:
        return []


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    return sorted(
        folders, key=lambda path: [int(number) for number in re.findall(r"\d+", path.parent.name)], reverse=True
    )


@cache
def _first_usable(version: str, paths: tuple[Path, ...]) -> tuple[Path | None, tuple[str, ...]]:
    """Run each candidate until one is what it seems; return it and what was wrong with those before it."""
    refusals: list[str] = []
    for path in paths:
        code, said = ask([path, "-I", "-c", _QUESTION], _TIME_LIMIT_S)
        lines = said.splitlines()
        if code == 0 and lines[:1] == [version] and lines[-1] == "complete":
            # A shim answers with the interpreter behind it.
            return Path(lines[1]), tuple(refusals)
        if code and lines[:1] == [version] and re.search("venv|ensurepip", lines[-1]):
            refusals.append(f"{path}: it lacks the modules venv and ensurepip")
        elif code == 0 and lines:
            refusals.append(f"{path}: it is Python {lines[0]}")
        else:
            refusals.append(f"{path}: exit code {code}, {lines[-1] if lines else 'no output'}")
    return None, tuple(refusals)
