"""Files through which the workers of a launch agree: written whole or not at all, and awaited by the others.

They lie in the run folder, which all workers share. An NFS client remembers for up to a minute that a name was absent,
until it learns that the folder has changed; opening the folder makes it ask the server. Every look for a file therefore
opens the folder first, which takes some microseconds on a local disk.
"""

import contextlib
import json
import os
import time

_POLL_S = 0.005


@contextlib.contextmanager
def open_whole(path, mode="w", durable=False):
    """Open a new file for writing, which gets the name ``path`` once the block has ended without an error.

    Args:
        path: of the file; another one of that name is replaced.
        mode: ``w`` or ``wb``.
        durable: whether the bytes reach the disk first, so that the file survives a power cut.
    """
    partial = path + ".partial"
    with open(partial, mode) as file:
        yield file
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.rename(partial, path)


def write_json(path, value, durable=False):
    """Write ``value``, which must be JSON-ready, to the file ``path``, whole or not at all."""
    with open_whole(path, durable=durable) as file:
        json.dump(value, file)


def read_json(path):
    """Return the value in the file ``path``."""
    with open(path) as file:
        return json.load(file)


def is_there(path):
    """Return whether the file ``path`` exists by now, whatever an NFS client remembers."""
    os.close(os.open(os.path.dirname(path) or ".", os.O_RDONLY))
    return os.path.exists(path)


def await_file(path, limit_s=None):
    """Return whether the file ``path`` has come within ``limit_s`` seconds; without a limit, wait until it has."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while not is_there(path):
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
