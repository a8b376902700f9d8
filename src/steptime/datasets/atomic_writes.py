"""Files and folders of datasets that have their names only when they are whole."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from steptime.errors import DatasetError
from steptime.process_identity import ProcessIdentity
from steptime.units import format_bytes

_MARGIN_BYTES = 64 * 2**20
"""That must be left on a disk."""
_LISTED = 5
_KEPT_S = 7 * 24 * 3600.0


@contextlib.contextmanager
def partial_folder(folder: Path) -> Iterator[Path]:
    """Make a folder next to ``folder``, which the block fills and renames; remove it where the block does not.

    Folders above are made, and removed is also what makers of ``folder`` left that were killed. A leftover of another
    container, or of a name that no maker gives, stays.
    """
    prefix = f".{folder.name}.partial-"
    folder.parent.mkdir(parents=True, exist_ok=True)
    for leftover in folder.parent.glob(f"{prefix}*"):
        maker = ProcessIdentity.parse(leftover.name.removeprefix(prefix))
        if maker and maker.has_ended:
            shutil.rmtree(leftover, ignore_errors=True)
    partial = folder.parent / f"{prefix}{ProcessIdentity.own()}"
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_unchanged(folder: Path, own: Collection[str]) -> None:
    """Raise DatasetError where a folder holds anything but the files ``own``, relative to it, or is a link."""
    if folder.is_symlink():
        message = f"{folder} is a link to a folder that holds something already; name the folder that it leads to"
        raise DatasetError(message)
    added = sorted(path for path in _files(folder) if path not in own)
    if added:
        more = f" and {len(added) - _LISTED} more" if len(added) > _LISTED else ""
        message = (
            f"{folder} holds something that steptime did not make: {', '.join(added[:_LISTED])}{more}; nothing was "
            "deleted: move that elsewhere, or name an empty folder, or one that does not exist yet"
        )
        raise DatasetError(message)


def put_in_place(partial: Path, folder: Path, own: Collection[str]) -> None:
    """Give the folder ``partial`` the name ``folder``, where an earlier one may have made the files ``own``.

    These are removed first, and nothing else. Raises DatasetError as ``require_unchanged`` does, OSError where
    something is added meanwhile.
    """
    if folder.exists():
        require_unchanged(folder, own)
        # index.json and dataset.json last, by which a later run knows the rest where this one is killed.
        files = sorted(_files(folder), reverse=True)
        for name in sorted(files, key=lambda name: ("/" not in name, name.endswith(".json"))):
            (folder / name).unlink()
        for place, _, _ in os.walk(folder, topdown=False):
            Path(place).rmdir()
    partial.rename(folder)


def _files(folder: Path) -> list[str]:
    """Return all below a folder that is not a folder itself, links to folders among it, relative to it."""
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        found += [Path(place, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return found


@contextlib.contextmanager
def open_new(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the name ``path`` once the block has ended; nothing is left where the block fails."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def keep_index(path: Path, content: Mapping[str, Any]) -> None:
    """Write the index of a user's dataset, ``PLACE-HASH.json``; old ones of the same place are removed.

    Raises DatasetError where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob(f"{path.name.partition('-')[0]}-*.json"):
            # A run that began before the folder changed still reads its own.
            if time.time() - older.stat().st_mtime > _KEPT_S:
                older.unlink(missing_ok=True)
        with open_new(path) as file:
            file.write(json.dumps(content).encode())
    except OSError as error:
        message = f"the index of a dataset cannot be written to {path}: {error.strerror}; set STEPTIME_CACHE elsewhere"
        raise DatasetError(message) from error


def require_space(name: str, folder: Path, needed: int, form: str | None = None) -> None:
    """Raise DatasetError unless the disk of ``folder`` has room for ``needed`` bytes of a dataset, and a margin."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed + _MARGIN_BYTES > free:
        message = (
            f"the dataset {name} needs about {format_bytes(needed)}{f' as {form}' if form else ''}, and the disk of "
            f"{existing} has {format_bytes(free)} left; free space there, ask for less, or choose another folder"
        )
        raise DatasetError(message)
