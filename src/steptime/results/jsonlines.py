"""Append-only JSON Lines files: a line is on the disk whole, or it is not there, and ends with a checksum.

A process that is killed while it writes leaves at most a last line without its line break. Readers ignore such a
line, and the next writer cuts it off. A line that is whole but no JSON (a damaged disk) is skipped and reported.

The last key of a line is ``checksum``: 16 hexadecimal digits of the SHA-256 of all that precedes it, which is the
line's object as compact JSON. A program that writes the same object with other spaces leaves the line valid.
"""

import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from steptime.errors import StoreError
from steptime.interruption import shielded
from steptime.plain_file import PlainFolder, cannot_read, cannot_write

_TAIL_BYTES = 65536
_MOST_BYTES = 256 << 20
"""Of a line: a launch of 16 workers with 500,000 steps each has about 150 MiB."""
CHECKSUM = "checksum"
_MARK, _END = b',"checksum":"', b'"}\n'
_SAFE = "Everything recorded before is safe, the record in flight was dropped as a whole. "


class JsonLine(NamedTuple):
    """One line as it was found: its number from 1, its bytes, and its object or what is wrong with it."""

    number: int
    raw: bytes
    value: dict[str, Any] | None
    problem: str | None
    verified: bool = False
    """Whether it has a checksum, which fits."""


def read_lines(folder: PlainFolder, path: Path) -> Iterator[JsonLine]:
    """Yield the whole lines of a file in a folder; nothing when there is no file."""
    return itertools.starmap(parse_line, enumerate(whole_lines(folder, path), 1))


def whole_lines(folder: PlainFolder, path: Path) -> Iterator[bytes]:
    """Yield the bytes of the same lines, which nothing has looked at."""
    try:
        file = os.fdopen(folder.open(path, os.O_RDONLY), "rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_read(path, error) from error
    with file:
        for number in itertools.count(1):
            raw = file.readline(_MOST_BYTES)
            if not raw.endswith(b"\n"):
                if len(raw) == _MOST_BYTES:
                    message = f"{path}, line {number} is longer than {_MOST_BYTES >> 20} MiB, which no record is"
                    raise StoreError(message)
                return
            yield raw


def append_line(folder: PlainFolder, path: Path, value: dict[str, Any]) -> None:
    """Write ``value`` and its checksum as one line of a file in a folder and wait until it is on the disk.

    A half-written last line is cut off first. Numbers that JSON does not know (NaN, infinity) become null. A signal
    that ends the run waits until the line is there: it was measured already.

    Raises StoreError when the line cannot be written; the file is then as it was before.
    """
    data = signed(value)
    new = not path.exists()
    with shielded():
        try:
            descriptor = folder.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                _append(descriptor, data, repaired_size(descriptor))
            finally:
                os.close(descriptor)
            if new:
                folder.sync(path.parent)
        except OSError as error:
            raise cannot_write(path, error, _SAFE) from error


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


def _append(descriptor: int, data: bytes, size: int) -> None:
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except BaseException:
        # Half a line must not stay, nor one that the disk may not hold.
        os.ftruncate(descriptor, size)
        raise


def signed(value: dict[str, Any]) -> bytes:
    """Return the line of an object, with its checksum and its line break."""
    data = json_text(value).encode()[:-1]
    return b"%s%s%s%s" % (data, _MARK, _digest(data), _END)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:16].encode()


def _fits(raw: bytes, value: Mapping[str, Any]) -> bool:
    """Say whether the checksum of a line fits its bytes, or its object where a program wrote it anew."""
    given = str(value[CHECKSUM]).encode()
    data, _, end = raw.rpartition(_MARK)
    if end == given + _END and _digest(data) == given:
        return True
    rest = {name: each for name, each in value.items() if name != CHECKSUM}
    return _digest(json_text(rest).encode()[:-1]) == given


def json_text(
    value: object, *, indent: int | None = None, sort_keys: bool = False, default: Callable[[Any], Any] | None = None
) -> str:
    """Return ``value`` as JSON, in which a number that JSON does not know (NaN, infinity) is null.

    Args:
        value: of JSON's types, and of those that ``default`` turns into some.
        indent: spaces of a level; None writes no space at all.
        sort_keys: whether keys are sorted.
        default: as that of ``json.dumps``.
    """
    encoder = json.JSONEncoder(
        indent=indent,
        sort_keys=sort_keys,
        separators=(",", ":") if indent is None else None,
        default=default,
        allow_nan=False,
    )
    try:
        return encoder.encode(value)
    except ValueError:
        return encoder.encode(_finite(value))


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


_BEGIN = re.compile(rb'\{"schema":([0-9]{1,9}),')
_SIGNATURE = len(_MARK) + 16 + len(_END)
_UNPLAIN = (b"\\", b"NaN", b"Infinity")


def schema_of_signed(raw: bytes) -> int | None:
    """Return the schema of a line whose checksum fits, without parsing it; None if only its object can show both.

    The line is as ``append_line`` writes it, ``schema`` is one key of it, and no number is one that JSON lacks.
    """
    begin = _BEGIN.match(raw)
    signature = raw[-_SIGNATURE:]
    if begin is None or not signature.startswith(_MARK) or raw.count(b'"schema"') != 1:
        return None
    if any(sign in raw for sign in _UNPLAIN) or signature != b"%s%s%s" % (_MARK, _digest(raw[:-_SIGNATURE]), _END):
        return None
    return int(begin[1])


def parse_line(number: int, raw: bytes) -> JsonLine:
    """Return a line with its object, or with what is wrong with it."""
    try:
        value = from_json(raw, cache_strings="keys", allow_inf_nan=False)
    except ValueError as error:
        return JsonLine(number, raw, None, str(error))
    if not isinstance(value, dict):
        return JsonLine(number, raw, None, "it is not a JSON object")
    if CHECKSUM not in value:
        return JsonLine(number, raw, value, None)
    if not _fits(raw, value):
        return JsonLine(number, raw, None, "its checksum does not fit: it was changed, or a disk damaged it")
    return JsonLine(number, raw, value, None, verified=True)
