"""Names that become part of a path: of studies and their scales, of trials, environments and hosts.

A name from a file leads nowhere but to a name in its own folder: it holds no slash, does not begin with a dot, and is
not taken for an option.
"""

import os
import re
from pathlib import Path

FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
HOST_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
"""As ssh takes it, ``user@host``; part of the names of files of a launch."""
MOST_CHARACTERS = 100
"""Of a name that a person gives."""
_LONGEST = 255
"""Of the name of a file, in Linux."""
_SHOWN = 60


def file_name_mistake(value: str, most: int = _LONGEST) -> str | None:
    """Return why a text cannot be the name of a file or a folder, with what is allowed, or None if it can."""
    return _mistake(
        FILE_NAME, "starts with a letter or digit and continues with letters, digits, '.', '_', '-'", value, most
    )


def host_name_mistake(value: str) -> str | None:
    """Return why a text cannot be the name of a host, or None if it can."""
    allowed = "starts with a letter, a digit or '_' and continues with letters, digits, '.', '_', '-', '@'"
    return _mistake(HOST_NAME, allowed, value, _LONGEST)


def as_file_name(text: str, otherwise: str) -> str:
    """Return a text with all that no name may hold replaced by dashes; ``otherwise`` where nothing is left of it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:MOST_CHARACTERS] or otherwise


def path_mistake(path: Path) -> str | None:
    """Return why a path cannot be written down in a study, a job or a record, or None if it can.

    Linux takes any bytes for a name, and JSON and YAML take text.
    """
    whole = os.fsencode(path.absolute())
    try:
        whole.decode()
    except UnicodeDecodeError:
        return f"{whole!r} is not UTF-8, which studies, jobs and records are written in"
    return None


def _mistake(pattern: str, allowed: str, value: str, most: int) -> str | None:
    shown = repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
    if not re.fullmatch(pattern.removesuffix("$"), value):
        return f"{shown} is not a name: it {allowed}"
    return f"{shown} is too long; it may have {most} letters" if len(value) > most else None
