"""Plain files: opened without following a symbolic link, read up to a limit, and written whole.

A results folder may come from somebody else, who may have put a symbolic link, a second name of another file, a named
pipe or a device in the place of any file, and a link in the place of any folder. Such a file is neither read nor
written, and no folder below the one that the user named is reached through a link: each is opened in the one above it,
and stays open while a file in it is opened, renamed or removed. The core reads and writes results through here alone.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from steptime.errors import StoreError
from steptime.interruption import shielded
from steptime.process_identity import ProcessIdentity

_PARTIAL = ".partial"
_OWNER = ".owner"
"""In a temporary folder: the identity of the process that made it."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_PLAIN = (errno.ELOOP, errno.EISDIR, errno.ENXIO)
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Without waiting: a named pipe may never be written to."""
_HARMLESS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK)
_NO_FOLDER = (errno.ELOOP, errno.ENOTDIR)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITES = os.O_WRONLY | os.O_RDWR
MOST_BYTES = 64 << 20
"""Of a file that is read at once."""


@dataclass(frozen=True)
class PlainFolder:
    """A folder that its user named, and all below it: no path in it leads through a link, to a pipe or to a device.

    Every method takes a path that begins with that of the folder. Raises StoreError that names what is not a plain file
    or folder; FileNotFoundError where there is none; other methods than ``write`` and ``replacement`` raise OSError
    where the system refuses.
    """

    path: Path
    """May itself be a link, or lead through some."""

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """Return the descriptor of a regular file; one that ``flags`` open for writing must have no second name."""
        with self._holding(path.parent) as folder:
            try:
                descriptor = os.open(path.name, flags | _NO_LINK, mode, dir_fd=folder)
            except OSError as error:
                if error.errno in _NOT_PLAIN:
                    raise _not_plain(path) from error
                error.filename = str(path)
                raise
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (flags & _WRITES and found.st_nlink > 1):
            os.close(descriptor)
            raise _not_plain(path)
        os.set_blocking(descriptor, True)  # whoever inherits it expects that
        return descriptor

    def read(self, path: Path) -> bytes:
        """Return the bytes of a regular file.

        Raises StoreError also where it is larger than ``MOST_BYTES`` or cannot be read.
        """
        try:
            with os.fdopen(self.open(path, os.O_RDONLY), "rb") as file:
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
    def replacement(self, path: Path) -> Iterator[BinaryIO]:
        """Open a new file that takes the place of ``path`` once it is whole; where that fails, ``path`` stays.

        The new file has a name that cannot be guessed, so that no link can wait under it. Folders above ``path`` are
        made. Raises StoreError when the file cannot be written, or when ``path`` is a folder, a pipe or a device.
        """
        partial = f".{secrets.token_hex(12)}.{ProcessIdentity.own()}{_PARTIAL}"
        try:
            self.make(path.parent, wanted=path)
            with self._holding(path.parent) as folder:
                _require_replaceable(path, folder)
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o644, dir_fd=folder)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        yield file
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(partial, dir_fd=folder)
                    raise
                _sync(folder)
        except OSError as error:
            raise cannot_write(path, error) from error

    def write(self, path: Path, data: bytes) -> None:
        """Write a file so that it is either the old one or the new one, whenever the machine stops.

        Raises StoreError as ``replacement`` does.
        """
        with self.replacement(path) as file:
            file.write(data)

    def put(self, path: Path, data: bytes, mode: int = 0o644) -> None:
        """Write a file that a crash may take, as those of a run folder; folders above it are made."""
        self.make(path.parent)
        with os.fdopen(self.open(path, os.O_WRONLY | os.O_CREAT, mode), "wb") as file:
            file.truncate()
            file.write(data)

    def make(self, path: Path, mode: int = 0o777, wanted: Path | None = None) -> None:
        """Make a folder with this mode, and those above it, where they are not there; StoreError where a file is.

        ``wanted`` is what the folder is for.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=mode if path == self.path else 0o777)
        except (FileExistsError, NotADirectoryError) as error:
            places = (each for each in (self.path, *self.path.parents) if os.path.lexists(each))
            file = next(places, self.path)
            what = f"{file} is {'a link' if file.is_symlink() else 'a file'}, and a folder is needed: name another"
            message = f"could not write {wanted}: {what}" if wanted else what
            raise StoreError(message) from error
        folder = self.path
        for name in self._names(path):
            with self._holding(folder) as above, contextlib.suppress(FileExistsError):
                os.mkdir(name, mode if folder / name == path else 0o777, dir_fd=above)
            folder /= name
        with self._holding(path):
            return

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; a link is removed, and what it leads to stays."""
        try:
            with self._holding(path.parent) as folder:
                if stat.S_ISDIR(os.lstat(path.name, dir_fd=folder).st_mode):
                    shutil.rmtree(path.name, dir_fd=folder)
                else:
                    os.unlink(path.name, dir_fd=folder)
        except FileNotFoundError:
            return

    def sync(self, path: Path) -> None:
        """Make the names of new files in a folder survive a power cut."""
        with self._holding(path) as folder:
            _sync(folder)

    def _names(self, path: Path) -> tuple[str, ...]:
        names = path.relative_to(self.path).parts
        if ".." in names:
            message = f"{path} leaves {self.path}"
            raise ValueError(message)
        return names

    @contextlib.contextmanager
    def _holding(self, path: Path) -> Iterator[int]:
        """Hold a folder open, which is reached through no link; the descriptor is for what ``dir_fd`` takes."""
        held, reached = os.open(self.path, _FOLDER), self.path
        try:
            for name in self._names(path):
                reached /= name
                try:
                    below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=held)
                except OSError as error:
                    if error.errno in _NO_FOLDER:
                        raise _not_plain(reached, "folder") from error
                    error.filename = str(reached)
                    raise
                os.close(held)
                held = below
            yield held
        finally:
            os.close(held)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that the user named, as ``PlainFolder.write`` does; folders above it may be links."""
    PlainFolder(path.parent).write(path, data)


def replacement(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open a new file in place of one that the user named, as ``PlainFolder.replacement`` does."""
    return PlainFolder(path.parent).replacement(path)


def appending(folder: Path, name: str) -> BinaryIO:
    """Open a file of a folder, behind what it holds, for what is said into it."""
    return os.fdopen(PlainFolder(folder).open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def remove_abandoned(folder: Path) -> None:
    """Remove the new files below ``folder`` whose writers were killed before they could give them their names.

    Files of writers that run, or that cannot be seen from here, stay.
    """
    for _, _, names, descriptor in os.fwalk(folder):  # follows no link
        for name in names:
            if not (name.startswith(".") and name.endswith(_PARTIAL)):
                continue
            writer = ProcessIdentity.parse(name.removesuffix(_PARTIAL).rpartition(".")[2])
            if writer and writer.has_ended:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Make a private folder for the time of a block, below the system's folder for temporary files.

    What processes of this user that were killed have left of the same purpose is removed.

    Args:
        purpose: a word of its name.
    """
    remove_left_folders(purpose)
    folder = tempfile.TemporaryDirectory(prefix=f"steptime-{purpose}-")
    try:
        (Path(folder.name) / _OWNER).write_text(str(ProcessIdentity.own()))
        yield Path(folder.name)
    finally:
        with shielded():
            folder.cleanup()


def remove_left_folders(purpose: str) -> None:
    """Remove the temporary folders of a purpose that processes of this user have left because they were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"steptime-{purpose}-*"):
        with contextlib.suppress(OSError):
            seen = folder.lstat()
            if stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid():
                owner = ProcessIdentity.parse((folder / _OWNER).read_text())
                if owner and owner.has_ended:
                    shutil.rmtree(folder)


def make_exclusively(folder: Path) -> None:
    """Make a folder that is not there, with those above it; raises StoreError where another process was faster."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(path: Path, error: OSError, safe: str = "") -> StoreError:
    """Return the error about a file that could not be written, with the sentence ``safe`` on what is kept."""
    cause = "the disk is full" if error.errno in _FULL else (error.strerror or str(error))
    remedy = "free some space" if error.errno in _FULL else "make the folder writable"
    return StoreError(f"could not write {path}: {cause}. {safe}{remedy.capitalize()}, then give the same command again")


def cannot_read(path: Path, error: OSError) -> StoreError:
    """Return the error about a file that could not be read, with the cause."""
    return StoreError(f"could not read {path}: {error.strerror or error}")


def refuse_links(folder: Path) -> None:
    """Raise StoreError when a name below ``folder``, at whatever depth, is a link, a pipe, a device or a second name.

    ``folder`` itself may be a link: its user named it. Sockets, which some frameworks leave, lead nowhere.
    """
    for entry in entries_below(folder):
        with contextlib.suppress(FileNotFoundError):  # a run removes folders meanwhile
            found = entry.stat(follow_symlinks=False)
            second_name = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
            if second_name or stat.S_IFMT(found.st_mode) not in _HARMLESS:
                raise _not_plain(Path(entry.path))


def entries_below(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield every name below ``folder``, at whatever depth, following no link; folders that are closed stay out."""
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            with os.scandir(waiting.pop()) as found:
                entries = list(found)
            yield from entries
            waiting += [each.path for each in entries if each.is_dir(follow_symlinks=False)]


def _sync(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot, and need not
            raise


def _require_replaceable(path: Path, folder: int) -> None:
    """Raise StoreError where a folder, a pipe or a device has the name of a new file, or a link to one, as /dev/stdout.

    A new file takes the place of a link to another file.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path.name, dir_fd=folder).st_mode):
            raise _not_plain(path)


def _not_plain(path: Path, wanted: str = "file") -> StoreError:
    return StoreError(
        f"{path} is {_kind(path)}, not a plain {wanted} of its own; steptime neither reads nor writes it, because it "
        f"may lead to a file outside. Remove it, or copy the {wanted} that is meant in its place"
    )


def _kind(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError:
        return "gone"
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    if not stat.S_ISREG(found.st_mode):
        return "a pipe, a socket or a device"
    return "a second name of another file" if found.st_nlink > 1 else "a file"
