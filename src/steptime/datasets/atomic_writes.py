"""Files and folders of datasets that have their names only when they are whole."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from steptime.errors import DatasetError
from steptime.process_identity import ProcessIdentity
from steptime.units import format_bytes

_MARGIN_BYTES = 64 * 2**20
"""That must be left on a disk."""


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
