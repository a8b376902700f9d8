"""Datasets by their name or their folder."""

import os
from pathlib import Path

from steptime.datasets.builtins import BUILTINS
from steptime.datasets.creation import find_builtin
from steptime.datasets.dataset import Dataset
from steptime.datasets.image_folder import scan
from steptime.errors import DatasetError, choices_message

__all__ = ["Dataset", "open_dataset"]


def open_dataset(name: str, cache: Path, *, skip_broken: bool = False) -> Dataset:
    """Return a built-in dataset that has been made, or a user's folder of images, looked through.

    Args:
        name: a key of ``builtins.BUILTINS``, or a folder ``FOLDER/class/*.jpg`` (or jpeg, png), or one that holds a
            folder ``train`` and a folder ``validation`` of such classes.
        cache: the user's cache folder, where indices of folders are kept.
        skip_broken: whether broken images are left out instead of being an error.

    Raises DatasetError, which names what is wrong and the remedy, also for a built-in dataset that is not made yet.
    """
    if name in BUILTINS:
        made = find_builtin(name, cache)
        if made is None:
            message = (
                f"the dataset {name} has not been made on this machine; 'steptime run' and 'steptime data' make it"
            )
            raise DatasetError(message)
        return made
    folder = Path(name).expanduser()
    if not folder.exists():
        raise DatasetError(_missing(name, folder))
    if not folder.is_dir():
        message = f"the dataset {name} is a file; name a folder that has one folder of images per class"
        raise DatasetError(message)
    return scan(name, folder.absolute(), cache, skip_broken=skip_broken)


def _missing(name: str, folder: Path) -> str:
    if os.sep not in name:
        return f"{choices_message('dataset', name, BUILTINS)}, and there is no folder {folder.absolute()}"
    existing = next((parent for parent in folder.absolute().parents if parent.is_dir()), None)
    return f"there is no folder {folder.absolute()} for the dataset {name}; {existing} is as far as the path exists"
