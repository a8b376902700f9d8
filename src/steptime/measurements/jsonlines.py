"""Append-only JSON Lines files: a line is on the disk whole, or it is not there.

A process that is killed while it writes leaves at most a last line without its line break. Readers ignore such a
line, and the next writer cuts it off. A line that is whole but no JSON (a damaged disk) is skipped and reported.
"""

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from steptime.errors import StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TAIL_BYTES = 65536


@dataclass(frozen=True)
class JsonLine:
    """One line as it was found: its number from 1, the byte behind it, and its object or what is wrong with it."""

    number: int
    end: int
    value: dict[str, Any] | None
    problem: str | None


def read_lines(path: Path, start: int = 0) -> Iterator[JsonLine]:
    """Yield the whole lines from byte ``start`` on; nothing when there is no file; numbers count from ``start``."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(start)
        end = start
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            end += len(raw)
            value, problem = _parse(raw)
            yield JsonLine(number, end, value, problem)


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Write ``value`` as one line and wait until it is on the disk.

    A half-written last line is cut off first. Numbers that JSON does not know (NaN, infinity) become null.

    Raises StoreError when the line cannot be written; the file is then as it was before.
    """
    data = _dump(value)
    new = not path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _append(descriptor, data, repaired_size(descriptor))
        finally:
            os.close(descriptor)
        if new:
            sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def repaired_size(descriptor: int) -> int:
    """Cut a last line without a line break off the open file; return the size that remains, in bytes."""
    size = os.fstat(descriptor).st_size
    keep = size
    while keep > 0:
        begin = max(0, keep - _TAIL_BYTES)
        found = os.pread(descriptor, keep - begin, begin).rfind(b"\n")
        if found >= 0:
            keep = begin + found + 1
            break
        keep = begin
    if keep < size:
        os.ftruncate(descriptor, keep)
    return keep


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file so that it is either the old one or the new one, whenever the machine stops.

    Raises StoreError when it cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise cannot_write(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make the names of new files in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> StoreError:
    """Return the error that says what could not be written, what is safe, and what to do."""
    cause = "the disk is full" if error.errno in _FULL else (error.strerror or str(error))
    remedy = "free some space" if error.errno in _FULL else "make the folder writable"
    message = (
        f"could not write {path}: {cause}. Everything recorded before is safe, the record in flight was dropped "
        f"as a whole; {remedy}, then give the same command again to continue"
    )
    return StoreError(message)


def _append(descriptor: int, data: bytes, size: int) -> None:
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except BaseException:
        # Also on Ctrl-C: half a line must not stay.
        os.ftruncate(descriptor, size)
        raise


def _dump(value: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _parse(raw: bytes) -> tuple[dict[str, Any] | None, str | None]:
    try:
        value = from_json(raw, cache_strings="keys")
    except ValueError as error:
        return None, str(error)
    if not isinstance(value, dict):
        return None, "it is no JSON object"
    return value, None
