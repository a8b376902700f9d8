"""Files that a user names for output: one that holds anything but an older output of the same kind is kept."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from steptime.errors import StoreError
from steptime.plain_file import PlainFolder

_SEEN_BYTES = 4096
"""Of a file, by which its kind is known."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file that steptime knows by the end of its name and by its first bytes."""

    name: str
    ending: str
    """Of a name that is offered for such a file."""
    start: bytes
    """A regular expression of the first bytes."""
    endings: tuple[str, ...] = ()
    """Of which a name has one; empty where the user names the file, and not its folder alone."""

    def holds(self, path: Path, start: bytes) -> bool:
        """Return whether a file that begins with ``start`` is of this kind."""
        named = not self.endings or path.name.endswith(self.endings)
        return named and re.match(self.start, start, re.DOTALL) is not None


STUDY = FileKind("a study", ".yaml", rb"(?:.*\n)?(?:question|workloads|frameworks|strategies) *:", (".yaml", ".yml"))
RUN_RECORD = FileKind("the record of a run", ".json", rb'\{\s*"schema": \d+,\s*"study": \{', (".json",))
PROFILE = FileKind(
    "a profile",
    ".profile.json",
    rb'\s*\{\s*"(?:schema"\s*:\s*[^,]{1,20},\s*"written_by"|kind"\s*:\s*"attached")',
)
PAGE = FileKind("a page of steptime", ".html", rb'\s*<!doctype html>.*<meta name="generator" content="steptime ')
JUNIT = FileKind("a comparison as JUnit XML", ".xml", rb'\s*<.*name="steptime compare"')
PARQUET = FileKind("a table as Parquet", ".parquet", b"PAR1", (".parquet",))
CSV = FileKind(
    "a table of steptime",
    ".csv",
    rb"(?:machine,folder,)?(?:id,group|trial,launch|trial,worker|trial,seed|file,line)",
    (".csv",),
)
HISTORY = FileKind("a history for Otava", ".csv", b"time,folder,steptime", (".csv",))
HISTORY_SETTINGS = FileKind("settings for Otava", ".yaml", rb"tests:.*\btype: csv\b", (".yaml",))
TRACE = FileKind("a trace of steptime", ".trace.json", rb'\{"traceEvents":', (".json",))
TALP = FileKind("efficiencies for TALP-Pages", ".json", rb'\{\s*"dlbVersion":.*steptime', (".json",))
MLLOG = FileKind("a log of MLPerf", ".log", b":::MLLOG ", (".log",))
EXTRAP = FileKind("step times for Extra-P", ".jsonl", rb'\{"params":', (".jsonl",))
METRICS = FileKind("metrics for Prometheus", ".prom", rb"# (?:HELP|TYPE) steptime_")
FIGURES = {
    "svg": FileKind("a figure as SVG", ".svg", rb"\s*<svg\b", (".svg",)),
    "png": FileKind("a figure as PNG", ".png", rb"\x89PNG", (".png",)),
    "pdf": FileKind("a figure as PDF", ".pdf", rb"%PDF", (".pdf",)),
    "txt": FileKind("a caption of steptime", ".txt", rb".*, measured on ", (".txt",)),
}
"""What a figure is written as, by the end of a name."""
_NAMED = (STUDY, RUN_RECORD, PROFILE, PAGE)
"""Kinds by which a file is called that has the name of another."""


def kind_of(path: Path) -> FileKind | None:
    """Return which of the files that people take for another one this is; None for others, and without a file."""
    start = _start(path)
    return next((kind for kind in _NAMED if start and kind.holds(path, start)), None)


def mistaken_file(path: Path, wanted: str, command: str) -> str | None:
    """Return what a file is that was named instead of another, with the next step; None for a file of no known kind.

    Args:
        path: of the file.
        wanted: what was expected, such as ``a profile``.
        command: that makes or takes it, with ``{}`` where the folder of results is written.
    """
    kind = kind_of(path)
    if kind is None:
        return None
    is_of_run = kind is not PROFILE and (path.parent / "study.json").is_file()
    command = command.format(path.parent if is_of_run else "RESULTS")
    if kind is STUDY and not is_of_run:
        command = f"run it (steptime run {path}), then {command}"
    elif kind is PROFILE:
        command = f"it predicts: steptime predict {path}"
    return f"{path} is {kind.name}, not {wanted}: {command}"


def require_free(path: Path, kind: FileKind) -> None:
    """Raise StoreError where a file of ``kind`` would take the place of a folder, or of a file of another kind.

    Before what is to be written takes time to find, call this.
    """
    if path.is_dir():
        message = f"{path} is a folder, and {kind.name} is a file: name one, such as {path / f'steptime{kind.ending}'}"
        raise StoreError(message)
    start = _start(path)
    if start == b"" or (start is not None and kind.holds(path, start)) or not path.is_file():
        return
    there = kind_of(path)
    what = f"{there.name}, not {kind.name}" if there and there is not kind else f"not {kind.name}"
    other = "another folder" if kind.endings else f"another, such as {_free(path, kind)}"
    message = f"{path} is {what}, and steptime replaces no other file: name {other}, or remove it first"
    raise StoreError(message)


@contextlib.contextmanager
def user_replacement(path: Path, kind: FileKind, folder: PlainFolder | None = None) -> Iterator[BinaryIO]:
    """Open a new file of ``kind`` in place of ``path``, as ``PlainFolder.replacement`` does.

    Args:
        path: as the user named it.
        kind: of what is written.
        folder: below which no link is followed; by default that of ``path``.

    Raises StoreError as ``require_free`` does, and where the file cannot be written.
    """
    require_free(path, kind)
    with (folder or PlainFolder(path.parent)).replacement(path) as file:
        yield file


def write_user_file(path: Path, data: bytes, kind: FileKind, folder: PlainFolder | None = None) -> None:
    """Write a file of ``kind``, as ``user_replacement`` opens it."""
    with user_replacement(path, kind, folder) as file:
        file.write(data)


def _start(path: Path) -> bytes | None:
    """Return the first bytes of a regular file; None without one, and where it cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(_SEEN_BYTES)
    except (OSError, ValueError):  # a NUL in the name
        return None


def _free(path: Path, kind: FileKind) -> Path:
    """Return the path of no file yet, which is like ``path`` and ends as its kind does."""
    stem = path.name.removesuffix(kind.ending) if path.name.endswith(kind.ending) else path.stem
    names = (f"{stem}{'' if number == 1 else f'-{number}'}{kind.ending}" for number in count(1))
    return next(free for name in names if not (free := path.with_name(name)).exists())
