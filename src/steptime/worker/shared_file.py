"""Files through which the workers of a launch agree: written whole or not at all, and awaited by the others.

They lie in the run folder, which all workers share. An NFS client remembers for up to a minute that a name was absent,
until it learns that the folder has changed; opening the folder makes it ask the server. Every look for a file therefore
opens the folder first, which takes some microseconds on a local disk.

Every file is opened in its open folder and through no link: the folder of a checkpoint may come from somebody else, and
a link in it could lead to any file of the user's.
"""

import contextlib
import json
import mmap
import os
import time
from typing import IO, TYPE_CHECKING, Any, Dict, Iterator, Optional

if TYPE_CHECKING:
    import numpy

_POLL_S = 0.005
_FLAG_S = 600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


def open_plain(path: str, flags: int, mode: int = 0o666) -> int:
    """Return the descriptor of the file ``path``; raises OSError where a symbolic link has its name."""
    with _opened_folder(path) as folder:
        return os.open(os.path.basename(path), flags | _NO_LINK, mode, dir_fd=folder)


@contextlib.contextmanager
def open_whole(path: str, mode: str = "w", durable: bool = False) -> Iterator[IO[Any]]:
    """Open a new file for writing, which gets the name ``path`` once the block has ended without an error.

    Args:
        path: of the file; another one of that name is replaced.
        mode: ``w`` or ``wb``.
        durable: whether the bytes reach the disk first, so that the file survives a power cut.
    """
    name = os.path.basename(path)
    partial = name + ".partial"
    with _opened_folder(path) as folder:
        _remove(partial, folder)  # what a killed worker left, or somebody put there
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666, dir_fd=folder)
        with os.fdopen(descriptor, mode) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def write_json(path: str, value: Any, durable: bool = False) -> None:
    """Write ``value``, which must be JSON-ready, to the file ``path``, whole or not at all."""
    with open_whole(path, durable=durable) as file:
        json.dump(value, file)


def read_json(path: str) -> Any:
    """Return the value in the file ``path``."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "r") as file:
        return json.load(file)


def read_arrays(path: str) -> Dict[str, "numpy.ndarray"]:
    """Return ``{name: array}`` of a numpy archive; objects in it are not read."""
    import numpy  # not every process of a launch has it

    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file, numpy.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def is_there(path: str) -> bool:
    """Return whether the file ``path`` exists by now, whatever an NFS client remembers."""
    os.close(os.open(os.path.dirname(path) or ".", os.O_RDONLY))
    return os.path.exists(path)


def await_file(path: str, limit_s: Optional[float] = None) -> bool:
    """Return whether the file ``path`` has come within ``limit_s`` seconds; without a limit, wait until it has."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while not is_there(path):
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


@contextlib.contextmanager
def _opened_folder(path: str) -> Iterator[int]:
    folder = os.open(os.path.dirname(path) or ".", _FOLDER)
    try:
        yield folder
    finally:
        os.close(folder)


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


class SharedFlag(object):
    """What one process of a host raises and others see at once: a byte of a file that all have in their memory."""

    def __init__(self, path: str, own: bool) -> None:
        """Make the file ``path``, or wait for the process whose ``own`` it is."""
        if own:
            with open_whole(path, "wb") as file:
                file.write(bytes(1))
        elif not await_file(path, _FLAG_S):
            raise RuntimeError("no worker made %s within %g s; its records say why" % (path, _FLAG_S))
        with os.fdopen(open_plain(path, os.O_RDWR), "r+b") as file:
            self._byte = mmap.mmap(file.fileno(), 1)

    def put_up(self) -> None:
        """Raise it."""
        self._byte[0] = 1

    def is_up(self) -> int:
        """Return what is true once it was raised."""
        return self._byte[0]


class RecordFile(object):
    """An append-only JSON Lines file; every line is flushed, so that a death loses nothing already written."""

    def __init__(self, path: str) -> None:
        self._file = os.fdopen(open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a")

    def write(self, kind: str, **fields: Any) -> None:
        """Append one record; ``kind`` names what it is, ``fields`` must be JSON-ready."""
        fields["kind"] = kind
        self._file.write(json.dumps(fields, sort_keys=True) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file after making sure that it is on the disk."""
        os.fsync(self._file.fileno())
        self._file.close()
