"""The files in which the kernel describes a host, read so that one which is not there is empty.

Host agents run without site-packages: only the standard library is imported, and nothing that takes long to import.
"""

import os


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
