"""The umask of this process: others may not write to what steptime makes, and a user's own command keeps its own.

Who can write to what steptime makes could put code into what its user runs, whatever the umask of the shell.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NO_WRITERS = 0o022
_masks: list[int] = []
"""The one that this process was started with, once ``restrict`` has changed it."""


def restrict() -> None:
    """Let only the owner write to what this process makes."""
    before = os.umask(_NO_WRITERS)
    os.umask(before | _NO_WRITERS)
    _masks[:] = [before]


@contextmanager
def callers_umask() -> Iterator[None]:
    """Have the umask that this process was started with."""
    if not _masks:
        yield
        return
    own = os.umask(_masks[0])
    try:
        yield
    finally:
        os.umask(own)
