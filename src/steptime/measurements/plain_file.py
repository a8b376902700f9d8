"""Plain files: opened without following a symbolic link, read up to a limit, and written whole.

A results folder may come from somebody else, who may have put a symbolic link, a second name of another file, a named
pipe or a device in the place of any file. Such a file is neither read nor written.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from steptime.errors import StoreError
from steptime.process_identity import ProcessIdentity

_PARTIAL = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_PLAIN = (errno.ELOOP, errno.EISDIR, errno.ENXIO)
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Without waiting: nobody may ever write to a named pipe."""
_WRITES = os.O_WRONLY | os.O_RDWR
_LINK_DEPTH = 3
"""Levels of a results folder that hold files of steptime: NAME.json, trials/ID, trials/ID/records.jsonl."""
MOST_BYTES = 64 << 20
"""Of a file that is read at once."""


def refuse_links(folder: Path) -> None:
    """Raise StoreError when a name in ``folder``, down to the run folders of its trials, is a symbolic link.

    ``folder`` itself may be one: its user named it.
    """
    folders = [folder]
    for _ in range(_LINK_DEPTH):
        entries = []
        for each in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(each) as found:
                entries += list(found)
        for entry in entries:
            if entry.is_symlink():
                raise _not_plain(Path(entry.path))
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def open_plain(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file.

    Raises StoreError when ``path`` is a symbolic link, a folder, a pipe or a device, and when a file that ``flags``
    open for writing has a second name; OSError as ``os.open`` does.
    """
    try:
        descriptor = os.open(path, flags | _NO_LINK, 0o644)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise _not_plain(path) from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or (flags & _WRITES and found.st_nlink > 1):
        os.close(descriptor)
        raise _not_plain(path)
    return descriptor


def read_plain(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises FileNotFoundError where there is none, StoreError where it is no plain file, is larger than ``MOST_BYTES``
    or cannot be read.
    """
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise cannot_read(path, error) from error
    if len(data) > MOST_BYTES:
        message = f"{path} is larger than {MOST_BYTES >> 20} MiB, which no such file of steptime is"
        raise StoreError(message)
    return data


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``path`` once it is whole; where that fails, ``path`` stays as it was.

    The new file has a name that nobody can foresee, so that no link can wait under it. Folders above ``path`` are
    made. Raises StoreError when the file cannot be written, or when ``path`` is a folder, a pipe or a device.
    """
    partial = path.with_name(f".{secrets.token_hex(12)}.{ProcessIdentity.own()}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise _not_plain(path)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def remove_abandoned(folder: Path) -> None:
    """Remove the new files below ``folder`` whose writers were killed before they could give them their names.

    Files of writers that run, or that cannot be seen from here, stay.
    """
    for partial in folder.rglob(f".*{_PARTIAL}"):
        writer = ProcessIdentity.parse(partial.name.removesuffix(_PARTIAL).rpartition(".")[2])
        if writer and writer.has_ended:
            with contextlib.suppress(OSError):
                partial.unlink()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is either the old one or the new one, whenever the machine stops.

    Raises StoreError as ``replacement`` does.
    """
    with replacement(path) as file:
        file.write(data)


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


def cannot_write(path: Path, error: OSError, safe: str = "") -> StoreError:
    """Return the error that says what could not be written, the sentence ``safe`` on what is kept, and what to do."""
    cause = "the disk is full" if error.errno in _FULL else (error.strerror or str(error))
    remedy = "free some space" if error.errno in _FULL else "make the folder writable"
    return StoreError(f"could not write {path}: {cause}. {safe}{remedy.capitalize()}, then give the same command again")


def cannot_read(path: Path, error: OSError) -> StoreError:
    """Return the error that says what could not be read, and why."""
    return StoreError(f"could not read {path}: {error.strerror or error}")


def _not_plain(path: Path) -> StoreError:
    kind = _kind(path)
    return StoreError(
        f"{path} is {kind}, not a plain file of its own; steptime neither reads nor writes it, because it may lead to "
        "a file outside. Remove it, or copy the file that is meant in its place"
    )


def _kind(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return "gone"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a second name of another file" if stat.S_ISREG(mode) else "a pipe, a socket or a device"
