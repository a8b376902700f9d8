"""The lock of a file: the kernel's, or a lease where the file system refuses the kernel's or keeps it to one host.

A lease: one holder of a name on a file system that several hosts share and whose kernel locks nothing there.

Each holder makes a file ``NAME.N`` that must not exist yet, with the next number N; who holds the highest number holds
the lease. Numbers only grow and the highest is never removed, so that two that take a dead holder's lease over at
once cannot both succeed, and whoever comes late sees a higher number than its own.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from steptime.process_identity import ProcessIdentity

BEAT_S = 5.0
"""Between two heartbeats of a holder."""
SILENCE_S = 600.0
"""A holder on another host that was silent for longer is dead; file servers that start again take minutes."""
_FREE = b"free"
_LONGEST = 300
"""Bytes of a lease's file that are read."""
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True)
class _Found:
    """The content of the highest file."""

    number: int
    text: bytes
    """The holder's identity, or that it is free; empty where its maker has not written yet, or died before it did."""
    silent_s: float
    """Since its last heartbeat, by the clock of the file system."""


class Lease:
    """The lease of the open file ``descriptor`` at ``path``, from ``take`` to ``release``.

    A thread gives a heartbeat every ``beat_s`` seconds: the file's time of change, which the file server sets. The
    lease is taken from a holder that is known to be dead: a process of this boot and PID namespace that has ended, and
    was silent for ``grace_s`` so that what it started can end too, or any other that was silent for ``silence_s``.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        *,
        grace_s: float = 0.0,
        silence_s: float = SILENCE_S,
        beat_s: float = BEAT_S,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._grace_s, self._silence_s, self._beat_s = grace_s, silence_s, beat_s
        self._number = 0
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether somebody has taken the lease from this holder, which was silent for too long."""
        return self._lost

    def take(self) -> bool:
        """Take the lease if it is free; raises OSError when no file can be made in the folder."""
        found = self._highest()
        if found and not self._takeable(found):
            return False
        number = found.number + 1 if found else 1
        try:
            made = os.open(self._file(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        except FileExistsError:
            return False
        try:
            os.write(made, f"{ProcessIdentity.own()}\n{socket.gethostname()}\n".encode())
        finally:
            os.close(made)
        # A folder's listing may have been an old one, and the number one that was used and removed since.
        if max(self._numbers(), default=0) != number:
            self._file(number).unlink(missing_ok=True)
            return False
        for older in self._numbers():
            if older < number:
                self._file(older).unlink(missing_ok=True)
        self._number, self._lost = number, False
        self._ended.clear()
        self._heart = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._heart.start()
        return True

    def release(self) -> None:
        """Let the next one take the lease; nothing happens where it is not held any more."""
        if not self._number:
            return
        self._ended.set()
        if self._heart:
            self._heart.join()
        with contextlib.suppress(OSError):  # others then wait until the silence has been long enough
            if not self._is_lost():
                self._write(_FREE)
        self._number = 0

    def _beat(self) -> None:
        while not self._ended.wait(self._beat_s):
            with contextlib.suppress(OSError):  # the file server does not answer; it may again
                if self._is_lost():
                    self._lost = True
                    return
                os.utime(self._file(self._number))

    def _is_lost(self) -> bool:
        return max(self._numbers(), default=0) != self._number

    def _write(self, text: bytes) -> None:
        descriptor = os.open(self._file(self._number), os.O_WRONLY | os.O_TRUNC | _FLAGS)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def _takeable(self, found: _Found) -> bool:
        if found.text == _FREE or found.silent_s > self._silence_s:
            return True
        holder = ProcessIdentity.parse(found.text.decode(errors="replace").partition("\n")[0])
        return holder is not None and holder.has_ended and found.silent_s >= self._grace_s

    def _highest(self) -> _Found | None:
        """Return the content of the highest file; None if there is none."""
        while number := max(self._numbers(), default=0):
            with contextlib.suppress(FileNotFoundError):  # a later holder has removed it
                opened = os.open(self._file(number), os.O_RDONLY | _FLAGS)
                try:
                    text, changed = os.read(opened, _LONGEST), os.fstat(opened).st_mtime
                finally:
                    os.close(opened)
                os.utime(self._descriptor)  # hosts' clocks differ; that of the file system is one
                return _Found(number, text, os.fstat(self._descriptor).st_mtime - changed)
        return None

    def _numbers(self) -> list[int]:
        name = re.compile(re.escape(self._path.name) + r"\.([1-9][0-9]{0,11})")
        return [int(match[1]) for each in os.listdir(self._path.parent) if (match := name.fullmatch(each))]  # noqa: PTH208 - names are enough

    def _file(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


_REFUSED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""What file systems answer that have no flock: Lustre without ``-o flock``, NFS without a lock service, some FUSE."""
_HELD = {errno.EWOULDBLOCK, errno.EACCES}
_LOCAL_OPTIONS = {
    "nfs": {"local_lock=all", "local_lock=flock", "nolock"},
    "nfs4": {"local_lock=all", "local_lock=flock", "nolock"},
    "lustre": {"localflock"},
}
"""Options of a mount with which flock succeeds and holds on one host only, by the kind of file system."""
_MOUNTS = Path("/proc/self/mountinfo")


class FileLock:
    """An exclusive lock of the open file ``descriptor`` at ``path``, on one host or several.

    The kernel's lock is free the moment its holder and what inherited the descriptor have ended; a lease (``Lease``)
    at most ``silence_s`` seconds after. All hosts must mount the file system with the same options.
    """

    def __init__(self, path: Path, descriptor: int, *, grace_s: float = 0.0, silence_s: float = SILENCE_S) -> None:
        self._descriptor = descriptor
        self._lease = Lease(path, descriptor, grace_s=grace_s, silence_s=silence_s)
        self._kernel_locks = not locks_one_host_only(descriptor)

    @property
    def lost(self) -> bool:
        """Whether another process has taken the lock, because this one gave no heartbeat for too long."""
        return self._lease.lost

    @property
    def is_lease(self) -> bool:
        """Whether the file system refused the kernel's lock, or would keep it to one host."""
        return not self._kernel_locks

    def take(self) -> bool:
        """Take the lock if it is free; raises OSError where the file can be locked in no way."""
        if self._kernel_locks:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _HELD:
                    return False
                if error.errno not in _REFUSED:
                    raise
                self._kernel_locks = False
            else:
                return True
        return self._lease.take()

    def release(self) -> None:
        """Release a lease and close the descriptor, which releases the kernel's lock."""
        try:
            self._lease.release()
        finally:
            os.close(self._descriptor)


def locks_one_host_only(descriptor: int, mounts: Path = _MOUNTS) -> bool:
    """Say whether the file system of an open file grants flock on each host for itself, as its mount options say."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind_and_options = before.split(), after.split()
        if len(fields) > 2 and fields[2] == wanted and len(kind_and_options) > 2:  # noqa: PLR2004 - a mount's fields
            options = set(kind_and_options[2].split(","))
            return bool(options & _LOCAL_OPTIONS.get(kind_and_options[0], set()))
    return False
