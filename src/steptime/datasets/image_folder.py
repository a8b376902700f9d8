"""A user's folder of images: one folder per class, every image readable.

Images that cannot be decoded are found before a framework meets one in the middle of a run.
"""

import hashlib
import json
import os
import random
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Lock

from PIL import Image

from steptime.datasets.dataset import Dataset
from steptime.errors import DatasetError

MOST = 2000
"""Images looked at; of a larger dataset a random choice, since decoding millions would take hours."""

MOST_PIXELS = 50_000_000
"""Of an image, as every worker has to decode it."""
_MANY_PIXELS = 10_000_000
_LARGE = Lock()
"""Held while an image of more than ``_MANY_PIXELS`` is decoded: one at a time fits into any memory."""


def broken_images(folder: Path, paths: Sequence[str], most: int = MOST) -> tuple[int, list[tuple[str, str]]]:
    """Return how many images were decoded, and which of them are broken, with the reason.

    Args:
        folder: that ``paths`` are relative to.
        paths: of JPEG or PNG files.
        most: how many to decode.
    """
    chosen = list(paths)
    if len(chosen) > most:
        # The same ones every time: an error that comes and goes helps nobody.
        chosen = sorted(random.Random(0).sample(chosen, most))  # noqa: S311 - no secret
    # Pillow decodes outside the interpreter's lock.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        reasons = list(pool.map(lambda path: _why_broken(folder / path), chosen))
    return len(chosen), [(path, why) for path, why in zip(chosen, reasons, strict=True) if why]


def _why_broken(path: Path) -> str | None:
    """Return what is wrong with an image; None if it decodes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                image.verify()
            # Verifying uses the file up; only decoding finds what was cut off.
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                pixels = image.width * image.height
                if pixels > MOST_PIXELS:
                    return f"{image.width} x {image.height} pixels; images may have {MOST_PIXELS // 10**6} million"
                with _LARGE if pixels > _MANY_PIXELS else nullcontext():
                    image.load()
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken byte leads to
        if "cannot identify" in str(error):
            return "not a JPEG or PNG image" if path.stat().st_size else "empty file"
        return str(error) or type(error).__name__
    return None


ENDINGS = (".jpg", ".jpeg", ".png")
_LISTED = 10
_INDEX_FORM = b"files, classes, sizes\0"
"""The fields of an index: one with others gets another name."""
_KEPT_S = 7 * 24 * 3600.0


def scan(name: str, folder: Path, cache: Path) -> Dataset:
    """Return the dataset in ``folder``, an existing one; its index is kept in the cache, never in the folder.

    Images are decoded when the folder is seen for the first time, or has changed since.

    Raises DatasetError when there are no classes, no images, or broken ones.
    """
    classes = _classes(name, folder)
    files = [
        (f"{label_name}/{file}", label) for label, label_name in enumerate(classes) for file in classes[label_name]
    ]
    index = _index_path(folder, list(classes), files, cache)
    if not index.exists():
        _require_names([path for path, _ in files], folder)
        _require_readable(name, folder, [path for path, _ in files])
        _write_index(index, list(classes), files, _sizes(folder, [path for path, _ in files]))
    return Dataset(
        name=name,
        form="image_folder",
        path=folder,
        index=index,
        samples=len(files),
        class_names=tuple(classes),
        input_shape=None,
        bytes=_bytes(folder, (path for path, _ in files)),
    )


def _classes(name: str, folder: Path) -> dict[str, list[str]]:
    """Return the images of each class, sorted; folders without images are no classes."""
    try:
        with os.scandir(folder) as entries:
            folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        found = {each: _images(folder / each) for each in folders}
    except OSError as error:
        message = f"the dataset {name} cannot be read: {error.filename}: {error.strerror}"
        raise DatasetError(message) from error
    classes = {each: images for each, images in found.items() if images}
    if not classes:
        raise DatasetError(_no_classes(name, folder, folders))
    return classes


def _images(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name.lower().endswith(ENDINGS) and not entry.name.startswith(".") and entry.is_file()
        )


def _no_classes(name: str, folder: Path, folders: list[str]) -> str:
    wanted = f"expected {folder}/CLASS/*.jpg (or jpeg, png), one folder per class"
    if loose := _images(folder):
        return f"the dataset {name} has {len(loose)} images outside of any class; {wanted}"
    deeper = [each for each in folders if any(path.is_dir() and _images(path) for path in (folder / each).iterdir())]
    if deeper:
        better = "train" if "train" in deeper else deeper[0]
        return f"the dataset {name} has its classes one folder deeper; name {folder / better} instead"
    if folders:
        return f"the dataset {name} has no images in its {len(folders)} folders; {wanted}"
    return f"the dataset {name} is empty; {wanted}"


def _require_names(paths: Iterable[str], folder: Path) -> None:
    wrong = [path for path in paths if path.encode(errors="surrogateescape") != path.encode(errors="replace")]
    if wrong:
        listed = "\n".join(f"  {path!r}" for path in wrong[:_LISTED])
        message = f"{len(wrong)} names in {folder} are not UTF-8, which not every framework can open; rename:\n{listed}"
        raise DatasetError(message)


def _require_readable(name: str, folder: Path, paths: list[str]) -> None:
    checked, broken = broken_images(folder, paths)
    if not broken:
        return
    listed = "\n".join(f"  {folder / path}: {why}" for path, why in broken[:_LISTED])
    more = f"\n  and {len(broken) - _LISTED} more" if len(broken) > _LISTED else ""
    message = (
        f"the dataset {name} has {len(broken)} broken images among {checked} looked at:\n{listed}{more}\n"
        "Replace or delete them, and run again."
    )
    raise DatasetError(message)


def _index_path(folder: Path, classes: list[str], files: list[tuple[str, int]], cache: Path) -> Path:
    """Return where the index of this folder with this content is kept."""
    place = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    content = hashlib.sha256(_INDEX_FORM)
    for each in classes:
        content.update(f"{(folder / each).stat().st_mtime_ns}\0".encode())
    for path, _ in files:
        content.update(os.fsencode(path) + b"\0")
    return cache / "datasets" / "indices" / f"{place}-{content.hexdigest()[:12]}.json"


def _sizes(folder: Path, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Return width and height of each image, by which loaders draw what they cut out of it.

    Raises DatasetError when a file is no image.
    """

    def size(path: str) -> tuple[int, int]:
        try:
            with Image.open(folder / path, formats=("JPEG", "PNG")) as image:
                return image.size
        except Exception as error:
            message = f"{folder / path} is not a JPEG or PNG image ({error}); replace or delete it, and run again"
            raise DatasetError(message) from error

    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(size, paths, chunksize=256))


def _write_index(
    path: Path, classes: list[str], files: list[tuple[str, int]], sizes: Sequence[tuple[int, int]]
) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob(f"{path.name.partition('-')[0]}-*.json"):
            # A run that began before the folder changed still reads its own.
            if time.time() - older.stat().st_mtime > _KEPT_S:
                older.unlink(missing_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(json.dumps({"files": files, "classes": classes, "sizes": sizes}), encoding="utf-8")
        partial.rename(path)
    except OSError as error:
        message = f"the index of a dataset cannot be written to {path}: {error.strerror}; set STEPTIME_CACHE elsewhere"
        raise DatasetError(message) from error


def _bytes(folder: Path, paths: Iterable[str]) -> int:
    return sum((folder / path).stat().st_size for path in paths)
