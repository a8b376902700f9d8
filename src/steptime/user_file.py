"""Files that a user names: regular files of a limited size, so that no pipe, device or huge file is waited for."""

import contextlib
import errno
import io
import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path

from steptime.errors import FileError
from steptime.synonyms import path_hint
from steptime.units import format_bytes

_OTHER_FORMS = {
    b"\x1f\x8b": "a file of gzip; unpack it",
    b"PK\x03\x04": "a zip archive, as spreadsheets (.xlsx) are; export it as CSV, or unpack it",
    b"\xff\xfe": "UTF-16; save the file as UTF-8",
    b"\xfe\xff": "UTF-16; save the file as UTF-8",
    b"%PDF": "a PDF; name the data that it was made from",
}
"""By first bytes, what people name instead of a text file, and the next step."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_DESCRIPTORS = ("/dev/fd", "/proc/self/fd")
_PATIENCE_S = 10.0


def read_user_text(path: Path, most_bytes: int) -> str:
    """Return the text of a file in UTF-8, without the mark of the byte order that it may begin with.

    A pipe is read where the caller has opened it and names its descriptor, as ``<(…)`` of a shell does, once, and for
    as long as something comes.

    Raises FileError with the reason when the path is not a regular file, when the file cannot be opened or is longer
    than ``most_bytes``, and with the line where it is not UTF-8.
    """
    try:
        opened = _opened_pipe(path)
        content = _read_file(path, most_bytes + 1) if opened is None else _read_pipe(path, opened, most_bytes + 1)
    except OSError as error:
        raise FileError(path, _refused(path, error)) from error
    except ValueError as error:  # a NUL in the name
        raise FileError(path, str(error)) from error
    if len(content) > most_bytes:
        raise FileError(path, f"it holds more than {format_bytes(most_bytes)}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if form := next((form for start, form in _OTHER_FORMS.items() if content.startswith(start)), None):
            raise FileError(path, f"not text, but {form}") from error
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(path, "not UTF-8 text; save the file as UTF-8", line) from error


@contextlib.contextmanager
def open_user_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a regular file that a user named; raises FileError with the reason where that cannot be."""
    try:
        # Asked before the file is opened, since opening alone can mean something to a device.
        _require_regular(path, path.stat().st_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(path, _refused(path, error)) from error
    except ValueError as error:  # a NUL in the name
        raise FileError(path, str(error)) from error
    with os.fdopen(descriptor, "rb") as file:
        _require_regular(path, os.fstat(descriptor).st_mode)
        yield file


def _refused(path: Path, error: OSError) -> str:
    """Return why a file cannot be opened, with the one that may be meant where it is not there."""
    meant = path_hint(path) if error.errno == errno.ENOENT else ""
    return "; ".join(filter(None, (error.strerror or str(error), meant)))


def _read_file(path: Path, count: int) -> bytes:
    with open_user_file(path) as file:
        return file.read(count)


def _opened_pipe(path: Path) -> int | None:
    if str(path.parent) not in _DESCRIPTORS or not path.name.isdecimal():
        return None
    descriptor = int(path.name)
    return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None


def _read_pipe(path: Path, descriptor: int, count: int) -> bytes:
    content = b""
    while len(content) < count:
        if not select.select([descriptor], [], [], _PATIENCE_S)[0]:
            raise FileError(path, f"nothing came through the pipe for {_PATIENCE_S:g} s")
        piece = os.read(descriptor, count - len(content))
        if not piece:
            break
        content += piece
    return content


def _require_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise FileError(path, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise FileError(path, f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file of text")
