"""The lock of a file: the kernel's, or a lease where the file system refuses the kernel's or keeps it to one host."""

import errno
import fcntl
import os
from pathlib import Path

from steptime.lease import SILENCE_S, Lease

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
