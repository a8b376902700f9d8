"""A program that mounts a folder at another, through FUSE, on a file system that refuses flock.

``python lockless_mount.py FOLDER MOUNT ERROR`` serves until it is ended; ERROR is what flock answers, as ``ENOLCK``.
"""

import errno
import os
import sys
from pathlib import Path

from mfusepy import FUSE, FuseOSError, Operations


class Lockless(Operations):
    """All of a folder but its locks."""

    use_ns = True

    def __init__(self, root, refusal):
        self._root, self._refusal = root, refusal

    def _at(self, path):
        return self._root + path

    def getattr(self, path, fh=None):
        found = os.fstat(fh) if fh else os.lstat(self._at(path))
        names = ("mode", "nlink", "uid", "gid", "size")
        times = {f"st_{each}": getattr(found, f"st_{each}_ns") for each in ("atime", "mtime", "ctime")}
        return {**{f"st_{each}": getattr(found, f"st_{each}") for each in names}, **times}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self._at(path))]

    def mkdir(self, path, mode):
        os.mkdir(self._at(path), mode)
        return 0

    def rmdir(self, path):
        os.rmdir(self._at(path))
        return 0

    def chmod(self, path, mode):
        os.chmod(self._at(path), mode)
        return 0

    def unlink(self, path):
        os.unlink(self._at(path))
        return 0

    def rename(self, old, new):
        os.rename(self._at(old), self._at(new))
        return 0

    def symlink(self, target, source):
        os.symlink(source, self._at(target))
        return 0

    def readlink(self, path):
        return os.readlink(self._at(path))

    def create(self, path, mode, fi=None):
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open(self, path, flags):
        return os.open(self._at(path), flags & ~os.O_NOFOLLOW)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self._at(path), length)
        return 0

    def utimens(self, path, times=None):
        os.utime(self._at(path), ns=times) if times else os.utime(self._at(path))
        return 0

    def fsync(self, path, datasync, fh):
        os.fsync(fh)
        return 0

    def release(self, path, fh):
        os.close(fh)
        return 0

    def statfs(self, path):
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_") and name != "f_fsid"}

    def flock(self, path, fh, op):
        raise FuseOSError(self._refusal)


if __name__ == "__main__":
    folder, mount, error = sys.argv[1:]
    FUSE(Lockless(folder, getattr(errno, error)), str(Path(mount)), foreground=True, attr_timeout=0, entry_timeout=0)
