"""What lies in a user's folder: files of the endings that are read, folders, and what is not used, by reason."""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from steptime.datasets.atomic_writes import partial_folder
from steptime.datasets.dataset import Counts, Dataset
from steptime.errors import DatasetError

_ENDING = re.compile("[a-z][a-z0-9]{0,7}")
_FILE = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}$")
"""The ending of a name that is hardly that of a folder."""
LITTER = (
    *("lost+found", "@eaDir", "#recycle", "@Recycle", "__MACOSX", "$RECYCLE.BIN", "System Volume Information"),
    *("Thumbs.db", "desktop.ini", ".DS_Store", ".ipynb_checkpoints"),
)
"""What file systems, NAS devices, desktops and notebooks leave; also all other hidden files and folders."""
_LITTER = {name.casefold(): name for name in LITTER}


@dataclass(frozen=True)
class Entries:
    """What lies directly in a folder."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    linked: set[str] = field(default_factory=set)
    """Those of the folders that are links."""
    lost: dict[str, str] = field(default_factory=dict)
    """Why links that may lead to folders cannot be followed, by their names; they are counted in ``left_out`` too."""
    left_out: Counts = field(default_factory=Counter)


def entries_of(folder: Path, endings: Sequence[str]) -> Entries:
    """Return what lies in a folder, sorted; ``files`` are those with one of the ``endings``, in lower case.

    Raises OSError where the folder, or what has such an ending, cannot be read.
    """
    found = Entries()
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if litter := _litter(entry.name):
                found.left_out["litter", litter] += 1
                continue
            wanted = entry.name.lower().endswith(tuple(endings))
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError as error:
                if wanted:
                    raise
                found.left_out["unreadable", ""] += 1
                found.lost[entry.name] = error.strerror or str(error)
                continue
            if is_folder:
                found.folders.append(entry.name)
                found.linked.update([entry.name] if entry.is_symlink() else [])
            elif is_file and wanted:
                found.files.append(entry.name)
            elif is_file:
                found.left_out["format", _ending(entry.name)] += 1
            else:
                dangling = entry.is_symlink() and not Path(entry.path).exists()
                found.left_out["dangling_link" if dangling else "special_file", ""] += 1
                if dangling and not _FILE.search(entry.name):
                    found.lost[entry.name] = f"a link to {Path(entry.path).readlink()}, where nothing is"
    return found


def cannot_be_read(name: str, error: OSError) -> DatasetError:
    """Return the error of a dataset whose folder or file cannot be read, with what may help."""
    if error.errno in (errno.EACCES, errno.EPERM):
        way = "give yourself the permission to read it, or name another folder"
    else:
        way = "is what it lies on mounted? mount it again, or name another folder"
    return DatasetError(f"the dataset {name} cannot be read: {error.filename}: {error.strerror}; {way}")


def require_links(name: str, folder: Path, lost: Mapping[str, str]) -> None:
    """Raise DatasetError where links that may be folders of a dataset cannot be followed, which names them all."""
    if lost:
        listed = ", ".join(f"{folder / each} ({why})" for each, why in sorted(lost.items()))
        message = (
            f"the dataset {name} has folders that cannot be followed: {listed}; mount or restore what they lead to, or "
            "remove the links"
        )
        raise DatasetError(message)


def unused_of(folder: Path, entries: Entries, endings: Sequence[str]) -> Counts:
    """Count what is not used of a class: other files in its folder, and all in deeper ones; no link is followed."""
    counts = Counter(entries.left_out)
    counts["linked_folder", ""] += len(entries.linked)
    waiting = [folder / each for each in entries.folders if each not in entries.linked]
    while waiting:
        place = waiting.pop()
        try:
            deeper = entries_of(place, endings)
        except OSError:
            counts["unreadable", ""] += 1
            continue
        counts += deeper.left_out
        counts["deeper_folder", ""] += len(deeper.files)
        counts["linked_folder", ""] += len(deeper.linked)
        waiting += [place / each for each in deeper.folders if each not in deeper.linked]
    return counts


def _litter(name: str) -> str:
    """Return the name by which litter is counted; empty for anything else."""
    if name.startswith("._"):
        return "._*"
    return _LITTER.get(name.casefold(), "hidden" if name.startswith(".") else "")


def _ending(name: str) -> str:
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return ending if not ending or _ENDING.fullmatch(ending) else "of an odd ending"


_TOLD = 20


def write_pictures(
    dataset: Dataset,
    folder: Path,
    size: tuple[int, int] | None,
    count: int | None,
    progress: Callable[[int, int], None],
) -> int:
    """Write ``FOLDER/class/*.png`` of a dataset of the form ``arrays``, whole or not at all; return the bytes.

    Args:
        dataset: images uint8 (samples, 1 or 3, height, width) with labels.
        folder: must not exist or be empty.
        size: width and height of the pictures; None leaves them as they are.
        count: of samples, the first ones of the dataset; None for all.
        progress: is called with how many are written, and how many there will be.

    Raises DatasetError when the folder holds something already or cannot be written.
    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder} holds something already; name an empty folder, or one that does not exist yet"
        raise DatasetError(message)
    with np.load(dataset.path, allow_pickle=False) as file:
        images, labels = file["images"][:count], file["labels"][:count]
    total = 0
    try:
        with partial_folder(folder) as partial:
            for name in dataset.class_names:
                (partial / name).mkdir()
            for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                path = partial / dataset.class_names[label] / f"{number:05d}.png"
                _picture(image, size).save(path)
                total += path.stat().st_size
                if (number + 1) % _TOLD == 0:
                    progress(number + 1, len(images))
            partial.rename(folder)
    except OSError as error:
        why = os.strerror(errno.ENOSPC) if error.errno == errno.ENOSPC else error.strerror or error
        message = f"pictures cannot be written to {folder}: {why}; nothing of them was left, choose another folder"
        raise DatasetError(message) from error
    return total


def _picture(image: NDArray[np.uint8], size: tuple[int, int] | None) -> Image.Image:
    picture = Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, -1))
    return picture if size is None else picture.resize(size, Image.Resampling.BICUBIC)
