"""Foreign writers: users besides this process's own who could put code into what it runs, by rights on files.

A run makes run folders in a results folder, starts programs in them, and goes on from checkpoints that lie there: who
may write to one of these, or owns it, decides what runs. An owner may change the mode of a file and the names in a
folder. A group, everyone and, if the file system has access lists, single users may have the right to write. In a
folder such as /tmp (its mode has the sticky bit) others make new names, and rename or remove none that is there.
"""

import contextlib
import grp
import os
import pwd
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import steptime
from steptime.errors import StoreError
from steptime.file_name import path_mistake
from steptime.plain_file import entries_below, refuse_links

_ACCESS_LIST = "system.posix_acl_access"
_ENTRY = struct.Struct("<HHI")
"""Of an access list, behind its version of four bytes: kind, rights, and the number of a user or a group (acl(5))."""
_USER, _OWNING_GROUP, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_WRITE = 2
_MOST_LINKS = 40
"""That Linux follows on the way to a file."""


def writers_besides_owner(place: Path, found: os.stat_result) -> str | None:
    """Return who besides its owner may write to a file or a folder, or None.

    A group of its owner alone, as many systems make one for each user, does not count.
    """
    if found.st_mode & stat.S_IWOTH:
        return "everyone"
    if not found.st_mode & stat.S_IWGRP:
        return None
    users, groups = _listed_writers(place, found)
    strangers = [user for user in users if user not in (found.st_uid, *trusted_users())]
    if strangers:
        return f"the user {user_name(strangers[0])}"
    foreign = [group for group in groups if not _is_private(group, found.st_uid)]
    return f"the group {_group_name(foreign[0])}" if foreign else None


@cache
def trusted_users() -> frozenset[int]:
    """Return who may change what this process runs anyway: its user, root, and the owners of its program."""
    trusted = {os.geteuid(), 0}
    for program in (Path(sys.executable).resolve(), Path(steptime.__file__).parent):
        with contextlib.suppress(OSError):
            trusted.add(program.stat().st_uid)
    return frozenset(trusted)


def foreign_hand(place: Path, found: os.stat_result) -> str | None:
    """Return which foreign user owns a file or a folder, or may write to it, with owner and mode, or None."""
    whose = f"{place} (owner {user_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_uid not in trusted_users():
        return f"{whose} belongs to another user than {user_name(os.geteuid())}"
    if stat.S_ISLNK(found.st_mode):  # whose mode means nothing
        return None
    who = writers_besides_owner(place, found)
    return f"{whose} may be written by {who}" if who else None


def foreign_hand_above(path: Path) -> str | None:
    """Return who could put another folder in the place of ``path``, by rights on those above it, or None.

    These are all folders in which the system looks a name up on its way to ``path``, those of links included.
    """
    for place, found in _way_to(path):
        is_shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if is_shared and found.st_uid in trusted_users():
            continue
        if said := foreign_hand(place, found):
            return said
    return None


def require_folder_for_launches(folder: Path) -> None:
    """Raise StoreError where launches must not use a results folder, which may not exist yet.

    That is: another user owns it, anything in it or a folder above it, or may write to one of them; it holds a link; or
    its path is not in UTF-8, in which records are written.
    """
    if mistake := path_mistake(folder):
        message = f"the path of the results folder {mistake}; choose another folder with -o, or rename it"
        raise StoreError(message)
    me = user_name(os.geteuid())
    if said := foreign_hand_above(folder):
        message = (
            f"{said}, who could put another folder in the place of {folder}, and so code into what you run as {me}; "
            "choose a folder with -o above which only you may write"
        )
        raise StoreError(message)
    refuse_links(folder)
    if said := _foreign_hand_in(folder):
        message = (
            f"{said}, who could put code into what you run as {me}; choose a folder of your own with -o. To continue "
            f"in this one, check that it was not changed, and make it yours alone: chown -R {me} {folder} and "
            f"chmod -R go-w {folder}"
        )
        raise StoreError(message)


def require_own_files(paths: Iterable[Path]) -> None:
    """Raise StoreError where another user could change files that a launch imports, or put others in their place."""
    for path in paths:
        if said := foreign_hand_above(path) or foreign_hand(path, path.stat()):
            me = user_name(os.geteuid())
            message = (
                f"{said}, who could put code into what you run as {me}; copy {path} to a folder that only you may "
                f"write to, or make it so: chmod go-w"
            )
            raise StoreError(message)


def foreign_hand_on(folder: Path) -> str | None:
    """Return which other user could have changed a results folder, or None."""
    return foreign_hand_above(folder) or _foreign_hand_in(folder)


def _foreign_hand_in(folder: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        if said := foreign_hand(folder, folder.stat()):
            return said
    for entry in entries_below(folder):
        with contextlib.suppress(FileNotFoundError):
            if said := foreign_hand(Path(entry.path), entry.stat(follow_symlinks=False)):
                return said
    return None


def user_name(user: int) -> str:
    """Return the name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _way_to(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the folders and the links on the way to ``path``, from the root; it ends where there is nothing yet."""
    current, links = Path("/"), 0
    names = list(path.absolute().parts[1:])
    while names:
        yield current, current.stat()
        name = names.pop(0)
        following = current.parent if name == ".." else current / name
        try:
            found = following.lstat()
        except (FileNotFoundError, PermissionError):
            return
        if stat.S_ISLNK(found.st_mode) and links < _MOST_LINKS:
            yield following, found
            target = following.readlink()
            names, links = [*target.parts[target.is_absolute() :], *names], links + 1
            current = Path("/") if target.is_absolute() else current
        else:
            current = following


def _listed_writers(place: Path, found: os.stat_result) -> tuple[list[int], list[int]]:
    """Return the users and the groups that may write, besides the owner, to what its group may write.

    The group's part of a mode is the most that an access list gives anybody but the owner and everyone.
    """
    try:
        data = os.getxattr(place, _ACCESS_LIST, follow_symlinks=False)
    except OSError:  # it has no list, or its file system has none
        return [], [found.st_gid]
    entries = list(_ENTRY.iter_unpack(data[4:]))
    mask = next((rights for kind, rights, _ in entries if kind == _MASK), _WRITE)
    writers = [(kind, number) for kind, rights, number in entries if rights & mask & _WRITE]
    users = [number for kind, number in writers if kind == _USER]
    groups = [found.st_gid for kind, _ in writers if kind == _OWNING_GROUP]
    return users, groups + [number for kind, number in writers if kind == _GROUP]


def _is_private(group: int, user: int) -> bool:
    """Whether a group is that of one user alone."""
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return owner.pw_gid == group and found.gr_name == owner.pw_name and set(found.gr_mem) <= {owner.pw_name}


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
