"""A file of another program, read as a stream: plain or gzip, with a limit on what is held at once."""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pydantic_core import from_json

from steptime.errors import FileError, UsageError
from steptime.units import format_bytes
from steptime.user_file import open_user_file

_GZIP = b"\x1f\x8b"
_HEAD = 16 << 20
_LONGEST_LINE = 16 << 20
_MOST_BYTES = 64 << 30
_MOST_WHOLE = 256 << 20
_WATCHED_BYTES = 4 << 20
"""Unpacked, after which the one who watches is told how far a file is read."""
Watch = Callable[[Path, int], None]
"""Is told of a file how many of its bytes, as they lie on the disk, are read."""
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@dataclass(frozen=True)
class ReadLimits:
    """What a reader holds at once, and reads at most, in bytes."""

    line: int = _LONGEST_LINE
    """Of a line of text, or of an event of a trace."""
    file: int = _MOST_BYTES
    """Unpacked."""


LIMITS = ReadLimits()


class SourceFile:
    """An opened file; every failure to read it is a FileError that names it."""

    def __init__(self, path: Path, file: BinaryIO, limits: ReadLimits, on_disk: BinaryIO | None = None) -> None:
        """Take an opened file, and what it is unpacked from, if it is packed."""
        self.path = path
        self.limits = limits
        self._file = file
        self._on_disk = on_disk or file
        self._read = 0
        self._watch = _WATCH.get()
        self._told = 0

    def read(self, count: int) -> bytes:
        """Return the next bytes, unpacked; none at the end."""
        return self._counted(lambda: self._file.read(count))

    def lines(self) -> Iterator[str]:
        """Yield the lines, also those that a progress bar has written over one another."""
        number = 0
        while raw := self._counted(lambda: self._file.readline(self.limits.line + 1)):
            number += 1
            if len(raw) > self.limits.line:
                raise FileError(self.path, f"the line is longer than {format_bytes(self.limits.line)}", number)
            for part in raw.split(b"\r"):
                if line := part.decode(errors="replace").rstrip():
                    yield line

    def _counted(self, read: Callable[[], bytes]) -> bytes:
        try:
            data = read()
        except EOFError as error:
            raise FileError(self.path, "its gzip data has no end: the file is cut; copy it again") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise FileError(self.path, f"its gzip data is damaged ({error}); copy it again") from error
        except OSError as error:
            raise FileError(self.path, error.strerror or str(error)) from error
        self._read += len(data)
        if self._read > self.limits.file:
            raise FileError(self.path, f"it holds more than {format_bytes(self.limits.file)} unpacked")
        if self._watch is not None and (not data or self._read - self._told >= _WATCHED_BYTES):
            self._told = self._read
            self._watch(self.path, self._on_disk.tell())
        return data


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Tell ``watch`` how far the files are that are read within the block."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


@contextmanager
def open_source(path: Path, limits: ReadLimits = LIMITS) -> Iterator[SourceFile]:
    """Open a file, and unpack it where it is of gzip; raises FileError where it is not a regular file that opens."""
    with open_user_file(path) as file:
        packed = file.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
        source = gzip.GzipFile(fileobj=file) if packed else file
        yield SourceFile(path, cast("BinaryIO", source), limits, file)


def read_head(path: Path, most_bytes: int = _HEAD) -> str:
    """Return the beginning of a file, unpacked, as text; bytes that are not UTF-8 are replaced."""
    with open_source(path) as source:
        return source.read(most_bytes).decode(errors="replace")


def read_whole(path: Path, limits: ReadLimits) -> bytes:
    """Return all bytes of a file, unpacked; raises FileError where they are too many."""
    most = min(_MOST_WHOLE, limits.file)
    with open_source(path, limits) as source:
        data = source.read(most + 1)
    if len(data) > most:
        raise FileError(path, f"it holds more than {format_bytes(most)}")
    return data


def read_object(path: Path, limits: ReadLimits) -> Mapping[str, Any]:
    """Return the object of a JSON file; raises FileError where it is too large, and UsageError where it is none."""
    data = read_whole(path, limits)
    try:
        value = from_json(data)
    except ValueError as error:
        message = f"{path}: not JSON: {error}"
        raise UsageError(message) from error
    if not isinstance(value, dict):
        message = f"{path}: its JSON is a {type(value).__name__}, not an object"
        raise UsageError(message)
    return value


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file as it lies there."""
    with open_user_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
