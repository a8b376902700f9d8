"""Samples of an array in memory as a folder of picture files, one folder per class."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from steptime.datasets.atomic_writes import partial_folder
from steptime.datasets.dataset import Dataset
from steptime.errors import DatasetError

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
