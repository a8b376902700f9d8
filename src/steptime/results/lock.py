"""One writer per results folder, held by the kernel, or by a lease where the file system has no lock of files."""

import os
import socket
from pathlib import Path
from typing import Self

from steptime.errors import FolderInUse, StoreError
from steptime.file_lock import SILENCE_S, FileLock
from steptime.plain_file import PlainFolder, cannot_write, remove_abandoned
from steptime.results.progress import SILENT_S, last_sign_age_s, run_progress
from steptime.units import format_seconds


class FolderLock:
    """An exclusive lock on a file; may be entered again by the object that holds it.

    The file names the process and the host that hold the lock, for the message; what counts is the kernel's lock, or
    the lease. Who takes the lock removes what killed writers have left half-written in the folder.

    Raises FolderInUse when another process, or another object of this one, holds it; StoreError when it cannot be had,
    or when another process took it from this one because it gave no heartbeat for minutes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: FileLock | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        if self._lock is None:
            self._lock = self._take()
        elif self._lock.lost:
            raise StoreError(self._taken_over())
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take(self) -> FileLock:
        try:
            descriptor = PlainFolder(self._path.parent).open(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        lock = FileLock(self._path, descriptor)
        try:
            free = lock.take()
            holder = "" if free else os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        except OSError as error:
            lock.release()
            raise StoreError(self._no_lock(error)) from error
        if not free:
            lock.release()
            raise FolderInUse(self._in_use(holder, is_lease=lock.is_lease))
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError:
            pass  # a full disk keeps the name out of the file; the lock holds without it
        remove_abandoned(self._path.parent)
        return lock

    def _in_use(self, holder: str, *, is_lease: bool) -> str:
        """Say who holds the lock, when that gave its last heartbeat, and what to do.

        A file server may keep the lock of a host that died; who holds it then is silent.
        """
        folder, who = self._path.parent, holder or "another process"
        run, age_s = run_progress(folder), last_sign_age_s(folder)
        signs, silent = "is writing to it", False
        if run is not None and age_s is not None and run.ended is None and holder == f"process {run.pid} on {run.host}":
            who += f" (Slurm job {run.job})" if run.job else ""
            signs, silent = f"gave its last heartbeat {format_seconds(age_s)} ago", age_s > SILENT_S
        if is_lease:
            return (
                f"{folder} is in use: {who} {signs}. Wait for it to end, or choose another folder. This file system "
                f"locks no files: where the process was killed on another host, the folder is free "
                f"{format_seconds(SILENCE_S)} later"
            )
        if silent and run is not None:
            return (
                f"{folder} is locked by {who}, which {signs}. If {run.host} is dead, its file server frees the lock "
                f"some time later: give the same command again then. Once you know that the process is gone, remove "
                f"{self._path} to continue at once"
            )
        return f"{folder} is in use: {who} {signs}. Wait for it to end, or choose another folder"

    def _no_lock(self, error: OSError) -> str:
        return (
            f"{self._path.parent} cannot be locked ({error.strerror}): its file system has no lock of files, and no "
            "lease can be written there. Make the folder writable, mount the file system with locks on all hosts "
            "(-o flock for Lustre, local_lock=none for NFS), or choose another folder"
        )

    def _taken_over(self) -> str:
        return (
            f"another process writes to {self._path.parent} since this one gave no heartbeat for "
            f"{format_seconds(SILENCE_S)}; what was measured before is kept. Wait for it to end, then give the same "
            "command again"
        )
