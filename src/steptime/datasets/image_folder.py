"""A user's folder of images: one folder per class, every image readable.

Images that cannot be decoded are found before a framework meets one in the middle of a run.
"""

import hashlib
import json
import os
import random
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Lock

from PIL import Image

from steptime.datasets.atomic_writes import open_new
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
        # The same ones every time: an error that comes and goes cannot be found.
        chosen = sorted(random.Random(0).sample(chosen, most))  # noqa: S311 - no secret
    # Pillow decodes outside the interpreter's lock.
    with _threads() as pool:
        reasons = list(pool.map(lambda path: _why_broken(folder / path), chosen))
    return len(chosen), [(path, why) for path, why in zip(chosen, reasons, strict=True) if why]


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))


def _why_broken(path: Path) -> str | None:
    """Return what is wrong with an image; None if it decodes."""
    try:
        with _opened(path) as image:
            image.verify()
        # Verifying uses the file up; only decoding finds what was cut off.
        with _opened(path) as image:
            if reason := _unlike(image):
                return reason
            with _LARGE if image.width * image.height > _MANY_PIXELS else nullcontext():
                image.load()
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken byte leads to
        return _in_words(error, path)
    return None


def _header(path: Path) -> tuple[tuple[int, int], str | None]:
    """Return width and height of an image by its first bytes, and what these show to be wrong; None for nothing."""
    try:
        with _opened(path) as image:
            return image.size, _unlike(image)
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken byte leads to
        return (0, 0), _in_words(error, path)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image file in one of the formats that all frameworks decode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            yield image


def _in_words(error: Exception, path: Path) -> str:
    """Return what a decoder raised on a file."""
    if "cannot identify" in str(error):
        return "not a JPEG or PNG image" if path.stat().st_size else "empty file"
    return str(error) or type(error).__name__


def _unlike(image: Image.Image) -> str | None:
    """Return why frameworks could not make the same pixels of an image; None if they can."""
    if image.width * image.height > MOST_PIXELS:
        return f"{image.width} x {image.height} pixels; images may have {MOST_PIXELS // 10**6} million"
    if image.mode == "CMYK":
        return "CMYK colours, which not every framework converts alike; convert it to RGB"
    deep = image.mode in _DEEP or any(";16" in str(tile) for tile in getattr(image, "tile", []))
    return "16 bits per value, which not every framework scales alike; convert it to 8 bits" if deep else None


_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
ENDINGS = (".jpg", ".jpeg", ".png")
_LISTED = 10
_INDEX_FORM = b"files, classes, sizes, skipped; every header was looked at\0"
"""The fields of an index: one with others gets another name."""
_KEPT_S = 7 * 24 * 3600.0


TRAINING = "train"
VALIDATION = ("validation", "val", "valid", "test")
"""Names of the folder of samples that are not trained on; the first that holds classes is taken."""


def scan(name: str, folder: Path, cache: Path, *, skip_broken: bool = False) -> Dataset:
    """Return the dataset in ``folder``, an existing one; its index is kept in the cache, never in the folder.

    The folder has one folder per class, or a folder ``train`` of such folders and one for validation. Images are
    decoded when the folder is seen for the first time, or has changed since: of many a random choice, or all where
    broken ones are to be left out.

    Args:
        name: the folder as the user wrote it.
        folder: the same, absolute.
        cache: the user's cache folder.
        skip_broken: whether broken images and empty classes are left out instead of being an error.

    Raises DatasetError when there are no classes, no images, or broken ones.
    """
    held_out = _held_out(name, folder)
    if held_out is None:
        return _scan_classes(name, folder, cache, skip_broken=skip_broken)
    training = _scan_classes(name, folder / TRAINING, cache, skip_broken=skip_broken)
    validation = _scan_classes(name, held_out, cache, skip_broken=skip_broken, known=training.class_names)
    return replace(training, validation=validation, skipped=(*training.skipped, *validation.skipped))


def _held_out(name: str, folder: Path) -> Path | None:
    """Return the folder for validation where ``folder`` holds one and one for training; None if it does not."""
    try:
        if not _class_folders(folder / TRAINING):
            return None
        return next((folder / each for each in VALIDATION if _class_folders(folder / each)), None)
    except OSError as error:
        raise _unreadable(name, error) from error


def _class_folders(folder: Path) -> list[str]:
    """Return the folders within ``folder``, sorted; none where it does not exist or holds images itself."""
    if not folder.is_dir() or _images(folder):
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _scan_classes(name: str, folder: Path, cache: Path, *, skip_broken: bool, known: tuple[str, ...] = ()) -> Dataset:
    """Return the dataset of a folder with one folder per class; ``known`` are the classes that it may have."""
    classes = _classes(name, folder, skip_broken=skip_broken)
    if unknown := [each for each in classes if known and each not in known]:
        message = (
            f"{folder} has classes that the dataset {name} does not train on: {', '.join(unknown[:_LISTED])}; "
            f"the folders of {TRAINING} and of validation must have the same names"
        )
        raise DatasetError(message)
    labels = {each: label for label, each in enumerate(known or classes)}
    files = [(f"{each}/{file}", labels[each]) for each, images in classes.items() for file in images]
    index = _index_path(folder, list(classes), files, cache, skip_broken=skip_broken)
    if not index.exists():
        kept, skipped = files, list[tuple[str, str]]()
        _require_names([path for path, _ in files], folder)
        if skip_broken:
            kept, skipped = _whole(name, folder, files)
            skipped += [(each, "no images") for each in _empty(folder, classes)]
        sizes = _require_readable(name, folder, [path for path, _ in kept], most=0 if skip_broken else MOST)
        _write_index(index, list(labels), kept, sizes, skipped)
    left_out = []
    if skip_broken:
        listed = json.loads(index.read_text("utf-8"))
        files, left_out = [(path, label) for path, label in listed["files"]], listed["skipped"]
    return Dataset(
        name=name,
        form="image_folder",
        path=folder,
        index=index,
        samples=len(files),
        class_names=tuple(labels),
        input_shape=None,
        bytes=_bytes(folder, (path for path, _ in files)),
        skipped=tuple(f"{folder / path}: {why}" for path, why in left_out),
    )


def _whole(
    name: str, folder: Path, files: list[tuple[str, int]]
) -> tuple[list[tuple[str, int]], list[tuple[str, str]]]:
    """Return the files that decode, and the others with the reason; raises DatasetError where a class has none left."""
    _, broken = broken_images(folder, [path for path, _ in files], most=len(files))
    reasons = dict(broken)
    kept = [(path, label) for path, label in files if path not in reasons]
    lost = {path.split("/")[0] for path, _ in files} - {path.split("/")[0] for path, _ in kept}
    if lost:
        message = f"the dataset {name} has no readable image of {', '.join(sorted(lost)[:_LISTED])} in {folder}"
        raise DatasetError(message)
    return kept, broken


def _empty(folder: Path, classes: Mapping[str, list[str]]) -> list[str]:
    """Return the folders that would be classes if they held images."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    return [each for each in names if each not in classes]


def _unreadable(name: str, error: OSError) -> DatasetError:
    return DatasetError(
        f"the dataset {name} cannot be read: {error.filename}: {error.strerror}; give yourself the permission to read "
        "it, or name another folder"
    )


def _classes(name: str, folder: Path, *, skip_broken: bool) -> dict[str, list[str]]:
    """Return the images of each class, sorted.

    Raises DatasetError where a folder has no images, since the classes are numbered by their folders, unless
    ``skip_broken``.
    """
    try:
        with os.scandir(folder) as entries:
            folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        found = {each: _images(folder / each) for each in folders}
    except OSError as error:
        raise _unreadable(name, error) from error
    classes = {each: images for each, images in found.items() if images}
    if not classes:
        raise DatasetError(_no_classes(name, folder, folders))
    empty = [str(folder / each) for each in folders if each not in classes]
    if empty and not skip_broken:
        more = f" and {len(empty) - _LISTED} more" if len(empty) > _LISTED else ""
        message = (
            f"the dataset {name} has folders without images: {', '.join(empty[:_LISTED])}{more}; every folder is a "
            "class: put images there, remove it, or set skip_broken: true for the workload to leave it out"
        )
        raise DatasetError(message)
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
        beside = f", or add a folder {folder / VALIDATION[0]} with the same classes" if better == TRAINING else ""
        return f"the dataset {name} has its classes one folder deeper; name {folder / better} instead{beside}"
    if folders:
        return f"the dataset {name} has no images in its {len(folders)} folders; {wanted}"
    return f"the dataset {name} is empty; {wanted}"


def _require_names(paths: Iterable[str], folder: Path) -> None:
    wrong = [path for path in paths if path.encode(errors="surrogateescape") != path.encode(errors="replace")]
    if wrong:
        listed = "\n".join(f"  {path!r}" for path in wrong[:_LISTED])
        message = f"{len(wrong)} names in {folder} are not UTF-8, which not every framework can open; rename:\n{listed}"
        raise DatasetError(message)


def _require_readable(name: str, folder: Path, paths: list[str], most: int) -> list[tuple[int, int]]:
    """Return width and height of each image, by which loaders draw what they cut out of it.

    The first bytes of every file are looked at, and ``most`` of them are decoded.

    Raises DatasetError, which names the broken ones.
    """
    with _threads() as pool:
        headers = list(pool.map(lambda path: _header(folder / path), paths, chunksize=256))
    broken = [(path, why) for path, (_, why) in zip(paths, headers, strict=True) if why]
    odd = {path for path, _ in broken}
    decoded, damaged = broken_images(folder, [path for path in paths if path not in odd], most)
    broken = sorted(broken + damaged)
    if not broken:
        return [size for size, _ in headers]
    listed = "\n".join(f"  {folder / path}: {why}" for path, why in broken[:_LISTED])
    more = f"\n  and {len(broken) - _LISTED} more" if len(broken) > _LISTED else ""
    all_decoded = decoded + len(odd) == len(paths)
    among = f"{len(paths)} looked at" if all_decoded else f"{len(paths)} images, of which {decoded} were decoded"
    message = (
        f"the dataset {name} has {len(broken)} broken images among {among}:\n{listed}{more}\n"
        "Replace or delete them, and run again; or set skip_broken: true for the workload, which leaves them out."
    )
    raise DatasetError(message)


def _index_path(
    folder: Path, classes: list[str], files: list[tuple[str, int]], cache: Path, *, skip_broken: bool
) -> Path:
    """Return where the index of this folder with this content is kept."""
    place = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    content = hashlib.sha256(_INDEX_FORM)
    content.update(b"whole images only\0" if skip_broken else b"")
    for each in classes:
        content.update(f"{(folder / each).stat().st_mtime_ns}\0".encode())
    for path, label in files:
        found = (folder / path).stat()  # a file that was written over leaves its folder as it was
        content.update(os.fsencode(path) + b"\0%d\0%d\0%d\0" % (label, found.st_size, found.st_mtime_ns))
    return cache / "datasets" / "indices" / f"{place}-{content.hexdigest()[:12]}.json"


def _write_index(
    path: Path,
    classes: list[str],
    files: list[tuple[str, int]],
    sizes: Sequence[tuple[int, int]],
    skipped: Sequence[tuple[str, str]],
) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob(f"{path.name.partition('-')[0]}-*.json"):
            # A run that began before the folder changed still reads its own.
            if time.time() - older.stat().st_mtime > _KEPT_S:
                older.unlink(missing_ok=True)
        content = {"files": files, "classes": classes, "sizes": sizes, "skipped": skipped}
        with open_new(path) as file:
            file.write(json.dumps(content).encode())
    except OSError as error:
        message = f"the index of a dataset cannot be written to {path}: {error.strerror}; set STEPTIME_CACHE elsewhere"
        raise DatasetError(message) from error


def _bytes(folder: Path, paths: Iterable[str]) -> int:
    return sum((folder / path).stat().st_size for path in paths)
