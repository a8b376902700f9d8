"""Files as one host sees them: those in which its kernel describes it, and those that all hosts must share.

The launcher writes two small files, into the results folder and into the cache, with a text that cannot be guessed: a
host that shows the text shares the folder, and one that has a folder of its own at the same path does not. Host agents
run without site-packages: only the standard library is imported, and nothing that takes long to import.
"""

import os
import subprocess
import time
from typing import Any

_IMPORT_LIMIT_S = 120.0
_POLL_S = 0.02


def listed(folder: str) -> list[str]:
    """Return the names in a folder; none where it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def read_text(path: str) -> str:
    """Return what a file holds; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what this host sees of the shared files.

    ``seen_s`` is after how long the file of the results folder showed (None: not at all), ``import_s`` what an
    interpreter takes until it has numpy (None: it cannot), ``cache_seen`` whether the file of the cache shows,
    ``no_folders`` which datasets' folders cannot be read, ``no_programs`` which interpreters cannot be started.

    Args:
        asked: ``file`` of the results folder, the folder ``cache`` (None if none is needed) and ``cache_file`` in it
            (None if the launcher cannot write there), the ``text`` that both files hold, the ``interpreter`` of
            steptime itself, ``folders``, ``programs``, and ``limit_s``, after which a file is not there; NFS may
            remember for a minute that one was not.
    """
    deadline = time.monotonic() + asked["limit_s"]
    seen_s = _seconds_until(asked["file"], asked["text"], deadline)
    shared = seen_s is not None
    cache, cache_file = asked["cache"], asked["cache_file"]
    if shared and cache_file is not None:
        cache_seen = _seconds_until(cache_file, asked["text"], deadline) is not None
    else:
        cache_seen = cache is None or _can_list(cache)
    return {
        "seen_s": seen_s,
        "import_s": _seconds_of_import(asked["interpreter"]) if shared else None,
        "cache_seen": cache_seen,
        "no_folders": [each for each in asked["folders"] if not _can_list(each)],
        "no_programs": [each for each in asked["programs"] if not _can_start(each)],
    }


def _seconds_until(path: str, text: str, deadline: float) -> float | None:
    """Return after how many seconds a file showed its text; it is looked for once at least."""
    started, (folder, name) = time.monotonic(), os.path.split(path)
    while not (name in listed(folder) and read_text(path) == text):
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)
    return time.monotonic() - started


def _seconds_of_import(interpreter: str) -> float | None:
    started, command = time.monotonic(), [interpreter, "-c", "import numpy"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_IMPORT_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return time.monotonic() - started if done.returncode == 0 else None


def _can_list(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK)  # noqa: PTH112


def _can_start(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)  # noqa: PTH113
