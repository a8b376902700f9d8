"""Plain values of a file in Python's binary form (pickle), as PyTorch's flight recorder writes it; never a class.

What the file would do is looked through first, without doing it: an instruction that is not in ``_PLAIN`` refuses it.
Only then are its values made, by a reader that looks up no name either.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from steptime.errors import UsageError
from steptime.imported.source import ReadLimits, read_whole

_PLAIN = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG1",
    "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND",
    "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET",
    "LONG_BINGET",
))  # fmt: skip
"""Instructions that make dicts, lists, tuples, text, numbers, truth values and None, and repeat them."""
_MOST_PARTS = 10_000_000
"""Instructions of a file, and values that it has, a repeated one as often as it is there."""
_DEEPEST = 50
_BITS = 64


class _PlainReader(pickle.Unpickler):
    """A reader that looks up no class and no function."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        message = f"it names {module_name}.{global_name}"
        raise pickle.UnpicklingError(message)


def read_binary_object(path: Path, limits: ReadLimits) -> Mapping[str, Any]:
    """Return the object of a file in Python's binary form.

    Raises FileError where it is too large, and UsageError where it is damaged, is not an object, or has something else
    than plain values.
    """
    data = read_whole(path, limits)
    try:
        _check_instructions(data)
        value = _PlainReader(io.BytesIO(data)).load()
        _check_size(value)
    except Exception as error:  # of damaged data, the reader raises whatever its instructions end in
        message = f"{path} is in Python's binary form, and is not read: {error}"
        raise UsageError(message) from error
    if not isinstance(value, dict):
        message = f"{path} is in Python's binary form, of a {type(value).__name__} and not of a dict"
        raise UsageError(message)
    return value


def _check_instructions(data: bytes) -> None:
    """Raise ValueError where a file does something else than make plain values, or has no end."""
    parts: Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(data)
    for number, (instruction, argument, place) in enumerate(parts):
        if instruction.name not in _PLAIN:
            message = f"byte {place} is {instruction.name}, which plain values do not need, and which could run code"
            raise ValueError(message)
        if number > _MOST_PARTS:
            message = f"it has more than {_MOST_PARTS:,} parts"
            raise ValueError(message)
        if isinstance(argument, int) and argument.bit_length() > _BITS:
            message = f"byte {place} is a whole number of {argument.bit_length()} bits; a dump has up to {_BITS}"
            raise ValueError(message)
        if instruction.name.endswith("PUT") and not 0 <= argument <= number:  # writers count them up
            message = f"byte {place} remembers a value under number {argument}, which no writer does; it is damaged"
            raise ValueError(message)


def _check_size(value: object) -> None:
    """Raise ValueError where a value is nested too deeply, or has too many parts when repeated ones are written out."""
    level, parts = [value], 1
    for _ in range(_DEEPEST):
        further: list[object] = []
        for held in level:
            if isinstance(held, dict):
                further += held.keys()
                further += held.values()
            elif isinstance(held, (list, tuple)):
                further += held
            if parts + len(further) > _MOST_PARTS:
                message = f"it has more than {_MOST_PARTS:,} values"
                raise ValueError(message)
        if not further:
            return
        level, parts = further, parts + len(further)
    message = f"its values are nested more than {_DEEPEST} deep"
    raise ValueError(message)
