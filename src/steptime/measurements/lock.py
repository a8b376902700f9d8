"""One writer per results folder, held by the kernel, so that it is free the moment its holder dies."""

import fcntl
import os
import socket
from pathlib import Path
from typing import Self

from steptime.errors import StoreError
from steptime.measurements.plain_file import cannot_write, open_plain, remove_abandoned


class FolderLock:
    """An exclusive lock on a file; may be entered again by the object that holds it.

    The file names the process and the host that hold the lock, for the message; what counts is the kernel's lock.
    Who takes the lock removes what killed writers have left half-written in the folder.

    Raises StoreError when another process, or another object of this one, holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._descriptor = self._take()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self) -> int:
        try:
            descriptor = open_plain(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise StoreError(self._in_use(holder)) from None
        except OSError as error:
            os.close(descriptor)
            message = f"{self._path.parent} cannot be locked ({error.strerror}); choose a folder on a local disk"
            raise StoreError(message) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError:
            pass  # a full disk keeps the name out of the file; the lock holds without it
        remove_abandoned(self._path.parent)
        return descriptor

    def _in_use(self, holder: str) -> str:
        who = holder or "another process"
        return f"{self._path.parent} is in use: {who} is writing to it. Wait for it to end, or choose another folder"
