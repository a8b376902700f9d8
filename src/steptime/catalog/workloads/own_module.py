"""A workload of the user's own: a module, its batches and its loss, named by files that are read, never imported.

Which files of its folder a module imports is read from their text, so that a study can say it, and know a changed one,
before anything runs.
"""

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from steptime.errors import FileError, WorkloadError, choices_message
from steptime.synonyms import path_hint
from steptime.user_file import read_user_text

_MOST_BYTES = 4 * 2**20
"""Of a file."""
_MOST_FILES = 1000
_SHOWN_DIGITS = 8


class ModuleKind(NamedTuple):
    """A kind of module, of which each framework takes one."""

    title: str
    """What ``build`` returns."""
    packages: frozenset[str]
    """Of which a file that makes such a module imports one."""
    joining: str
    """What makes batch normalisation join the batches of all workers; empty where nothing does."""
    order: str
    """What names operations without a fixed order; likewise."""


MODULE_KINDS: Mapping[str, ModuleKind] = {
    "torch": ModuleKind(
        "a torch.nn.Module",
        frozenset({"torch", "torchvision", "timm"}),
        "torch.nn.SyncBatchNorm joins them on GPUs",
        "torch.use_deterministic_algorithms",
    ),
    "jax": ModuleKind(
        "an object with init and apply, as modules of flax.linen are", frozenset({"jax", "flax"}), "", ""
    ),
    "keras": ModuleKind(
        "a keras.Model",
        frozenset({"keras", "tensorflow"}),
        "synchronized=True of BatchNormalization joins them",
        "tf.config.experimental.enable_op_determinism",
    ),
}
"""By the name that a framework's manifest has as ``own_modules``."""


class OwnModule(BaseModel):
    """Where a user's module comes from; each function as ``PACKAGE.MODULE:FUNCTION``."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    folder: str
    """Absolute; from here its files are imported."""
    build: str
    """Takes nothing and returns the module."""
    data: str
    """Takes rank, number of workers and batch size, and returns an iterable of batches."""
    loss: str | None = None
    """Takes the module and a batch, and returns the loss; None for the default of the module's kind."""
    files: tuple[tuple[str, str], ...]
    """All that are imported from the folder, relative to it, and their SHA-256; the module's own is the first."""

    @property
    def paths(self) -> list[Path]:
        """The files, of which the first has the function that builds the module."""
        return [Path(self.folder) / name for name, _ in self.files]

    @property
    def digest(self) -> str:
        """Of all files, in hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.files).encode()).hexdigest()

    @property
    def in_words(self) -> str:
        """The module and the beginning of its digest, by which different contents have different names."""
        return f"{self.build}, {self.digest[:_SHOWN_DIGITS]}"


def find_own_module(folder: Path, build: str, data: str, loss: str | None = None) -> OwnModule:
    """Return a user's module; its files are read and not imported.

    Args:
        folder: absolute; where modules are sought.
        build: as in ``OwnModule``, like the next two.
        data: see there.
        loss: see there.

    Raises WorkloadError where the file is missing, is not Python, or lacks the name.
    """
    files: dict[Path, None] = {}
    for name in filter(None, (build, data, loss)):
        module, _, function = name.partition(":")
        if not all(part.isidentifier() for part in [*module.split("."), function]):
            message = f"{name!r} is not MODULE:FUNCTION, such as my_package.my_module:build"
            raise WorkloadError(message)
        if module.split(".")[0] == "steptime":
            message = f"{name!r}: a module of yours cannot be named steptime; rename it"
            raise WorkloadError(message)
        path = _file_of(folder, module.split("."))
        if path is None:
            place = (folder / Path(*module.split("."))).with_suffix(".py")
            meant = path_hint(place) or "paths start at the folder of the study"
            message = f"{name!r}: the file {place} is missing; {meant}"
            raise WorkloadError(message)
        _require_name(path, function)
        _add(folder, path, files)
    known = tuple(
        (path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files
    )
    return OwnModule(folder=str(folder), build=build, data=data, loss=loss, files=known)


@cache
def other_kind(own: OwnModule, kind: str) -> str | None:
    """Return the file and the import that show a module to be of another kind than ``kind``; None if none does.

    Files that import packages of several kinds, or of none, show nothing.
    """
    seen: dict[str, str] = {}
    for path in own.paths:
        for package in _packages(path):
            for name, each in MODULE_KINDS.items():
                if package in each.packages:
                    seen.setdefault(name, f"{path} imports {package}")
    return seen.popitem()[1] if len(seen) == 1 and kind not in seen else None


def _packages(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def _file_of(folder: Path, parts: list[str]) -> Path | None:
    plain, package = folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")
    return next((path for path in (package, plain) if path.is_file()), None)


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(read_user_text(path, _MOST_BYTES), str(path))
    except FileError as error:
        raise WorkloadError(str(error)) from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}, line {line}" if line else str(path)
        message = f"{where}: not Python: {getattr(error, 'msg', None) or error}"
        raise WorkloadError(message) from error


def _require_name(path: Path, name: str) -> None:
    """Raise WorkloadError where a file binds no such name at its top; nothing is claimed of ``import *``."""
    bound: list[str] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound += [(alias.asname or alias.name).split(".")[0] for alias in node.names]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.append(node.id)
    if name not in bound and "*" not in bound:
        message = f"{path}: {choices_message('function', name, dict.fromkeys(bound))}"
        raise WorkloadError(message)


def _add(folder: Path, path: Path, files: dict[Path, None]) -> None:
    """Add a file, the packages around it, and what these import from the folder."""
    left = [path]
    while left:
        each = left.pop()
        if each in files:
            continue
        if len(files) == _MOST_FILES:
            message = f"{path} imports more than {_MOST_FILES} files from {folder}; put it into a folder of its own"
            raise WorkloadError(message)
        files[each] = None
        packages = [folder / parent for parent in each.relative_to(folder).parents if parent.name]
        left += [package / "__init__.py" for package in packages if (package / "__init__.py").is_file()]
        left += _imported(folder, each)


def _imported(folder: Path, path: Path) -> Iterator[Path]:
    inside = list(path.relative_to(folder).parent.parts)
    for node in ast.walk(_tree(path)):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = inside[: len(inside) - node.level + 1] if node.level else []
            base = [*around, *(node.module.split(".") if node.module else [])]
            names = [base, *([*base, alias.name] for alias in node.names)]
        for parts in names:
            for length in range(1, len(parts) + 1):
                found = _file_of(folder, parts[:length])
                if found is not None:
                    yield found
