"""A user's folder of images: one folder per class, every image readable.

Images that cannot be decoded are found before a framework meets one in the middle of a run, and what is not used is
counted by reason.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.datasets.atomic_writes import keep_index
from steptime.datasets.dataset import PICTURE_ENDINGS, Counts, Dataset, Reason, in_words, left_out_of
from steptime.datasets.folder_entries import Entries, cannot_be_read, entries_of, require_links, unused_of
from steptime.datasets.layouts import TRAINING, VALIDATION, deeper_classes, is_class, layout_mistake, loose_labels
from steptime.datasets.picture_files import MOST, broken_images, header, threads
from steptime.errors import DatasetError

ENDINGS = (".jpg", ".jpeg", ".png")
_LISTED = 10
_INDEX_FORM = b"files, classes, sizes, skipped files; every header was looked at\0"
"""The fields of an index: one with others gets another name."""


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
    layout = _layout(name, folder)
    if layout is None:
        return _scan_classes(name, folder, cache, skip_broken=skip_broken)
    training = _scan_classes(name, folder / TRAINING, cache, skip_broken=skip_broken)
    validation, left_out = None, layout.left_out + _counts(training)
    if layout.validation is not None:
        known = training.class_names
        validation = _scan_classes(name, layout.validation, cache, skip_broken=skip_broken, known=known)
        left_out += _counts(validation)
    skipped = (*training.skipped, *(validation.skipped if validation else ()))
    return replace(training, validation=validation, skipped=skipped, left_out=left_out_of(left_out))


def _counts(dataset: Dataset) -> Counts:
    return Counter({(each.reason, each.kind): each.count for each in dataset.left_out})


def _lost(counts: Counts) -> bool:
    """Whether there may be pictures among what is not used of a folder."""
    return any(
        count and reason != "litter" and (reason != "format" or kind in PICTURE_ENDINGS)
        for (reason, kind), count in counts.items()
    )


@dataclass(frozen=True)
class _TrainingLayout:
    """That a folder holds a folder of classes to train on, and what lies beside it."""

    validation: Path | None
    """The folder of samples that are not trained on; None if that beside has no classes."""
    left_out: Counts


def _layout(name: str, folder: Path) -> _TrainingLayout | None:
    """Return how a folder is laid out that has classes in ``train`` and a folder for validation; None for others."""
    folders = _folders_of(name, folder)
    if folders is None:
        return None
    if folders.training.files and not (folders.split or folders.flat or folders.classes):
        message = (
            f"the dataset {name} has {len(folders.training.files)} images in {TRAINING} beside folders of images; move "
            f"them into a class, and name {name}/{TRAINING}"
        )
        raise DatasetError(message)
    if not folders.split and (folders.classes or not folders.flat):
        return None
    return _TrainingLayout(folder / folders.split[0] if folders.split else None, folders.left_out())


@dataclass(frozen=True)
class _Folders:
    """A folder with classes in ``train``, and what its other folders hold."""

    top: Entries
    training: Entries
    beside: Mapping[str, Entries]
    """Of the folders beside ``train``, those that can be listed."""
    unused: Mapping[str, Counts]
    """What is not used of each."""

    @property
    def split(self) -> list[str]:
        """The folders of validation that hold classes, or those of ``train``."""
        known = set(self.training.folders)
        return [
            name
            for name in self._validation
            if any(is_class(folder) or folder in known for folder in self.beside[name].folders)
            and (not self.beside[name].files or not known.isdisjoint(self.beside[name].folders))
        ]

    @property
    def flat(self) -> list[str]:
        """The folders of validation with pictures, or what may be some, in no class."""
        others = [name for name in self._validation if name not in self.split]
        return [name for name in others if self.beside[name].files or _lost(self.unused[name])]

    @property
    def classes(self) -> list[str]:
        """The other folders with pictures, which may be classes as ``train`` may be one."""
        return [name for name, entries in self.beside.items() if entries.files and name not in VALIDATION]

    @property
    def _validation(self) -> list[str]:
        return [name for name in VALIDATION if name in self.beside]

    def left_out(self) -> Counts:
        """Count what is neither trained on nor the first folder of classes for validation."""
        counts: Counts = self.top.left_out + Counter({("outside_class", ""): len(self.top.files)})
        flat, used = self.flat, self.split[:1]
        for name in (name for name in self.beside if name not in used):
            kind = name if name in VALIDATION else "other folders"
            litter = Counter({key: count for key, count in self.unused[name].items() if key[0] == "litter"})
            other = self.unused[name].total() - litter.total() + len(self.beside[name].files)
            reason: Reason = "no_classes" if name in flat else "unused_folder"
            counts += litter + Counter({(reason, kind): other})
        return counts


def _folders_of(name: str, folder: Path) -> _Folders | None:
    """Return what a folder holds; None of one without classes in ``train``.

    Raises DatasetError where it, ``train`` or a folder of validation cannot be listed.
    """
    try:
        top = entries_of(folder, ENDINGS)
        training = entries_of(folder / TRAINING, ENDINGS) if (folder / TRAINING).is_dir() else Entries()
        # Images beside folders of images belong to no class; beside folders without any, they are a class themselves.
        loose = training.files and not _has_images(folder / TRAINING, training.folders)
        if loose or not training.folders:
            return None
        beside = {other: entries_of(folder / other, ENDINGS) for other in top.folders if other in VALIDATION}
    except OSError as error:
        raise cannot_be_read(name, error) from error
    for other in top.folders:
        if other != TRAINING and other not in beside:
            try:
                beside[other] = entries_of(folder / other, ENDINGS)
            except OSError:
                top.left_out["unreadable", ""] += 1
    require_links(name, folder, {other: why for other, why in top.lost.items() if other in VALIDATION})
    unused = {other: unused_of(folder / other, entries, ENDINGS) for other, entries in beside.items()}
    return _Folders(top, training, beside, unused)


def _scan_classes(name: str, folder: Path, cache: Path, *, skip_broken: bool, known: tuple[str, ...] = ()) -> Dataset:
    """Return the dataset of a folder with one folder per class; ``known`` are the classes that it may have."""
    classes, empty, left_out = _classes(name, folder, skip_broken=skip_broken)
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
        sizes = _require_readable(name, folder, [path for path, _ in kept], most=0 if skip_broken else MOST)
        keep_index(index, {"files": kept, "classes": list(labels), "sizes": sizes, "skipped": skipped})
    broken = []
    if skip_broken:
        listed = json.loads(index.read_text("utf-8"))
        files, broken = [(path, label) for path, label in listed["files"]], listed["skipped"]
    left_out += Counter({("unreadable", ""): len(broken), ("empty_class", ""): len(empty)})
    return Dataset(
        name=name,
        form="image_folder",
        path=folder,
        index=index,
        samples=len(files),
        class_names=tuple(labels),
        input_shape=None,
        bytes=_bytes(folder, (path for path, _ in files)),
        skipped=tuple(f"{folder / path}: {why}" for path, why in [*broken, *((each, "no images") for each in empty)]),
        left_out=left_out_of(left_out),
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


def _classes(name: str, folder: Path, *, skip_broken: bool) -> tuple[dict[str, list[str]], list[str], Counts]:
    """Return the images of each class, sorted, the folders without any, and what is not used.

    Raises DatasetError where a folder has no images, since the classes are numbered by their folders, unless
    ``skip_broken`` and nothing in it may be a picture.
    """
    try:
        top = entries_of(folder, ENDINGS)
        found = {each: entries_of(folder / each, ENDINGS) for each in top.folders}
    except OSError as error:
        raise cannot_be_read(name, error) from error
    require_links(name, folder, top.lost)
    unused = {each: unused_of(folder / each, entries, ENDINGS) for each, entries in found.items()}
    left_out = sum(unused.values(), top.left_out + Counter({("outside_class", ""): len(top.files)}))
    classes = {each: entries.files for each, entries in found.items() if entries.files}
    if not classes:
        raise DatasetError(_no_classes(name, folder, found, left_out))
    if wrong := layout_mistake(folder, list(classes), ENDINGS):
        message = f"the dataset {name} has no folders of classes: {wrong}"
        raise DatasetError(message)
    empty = [each for each in found if each not in classes]
    if lost := {each: unused[each] for each in empty if _lost(unused[each])}:
        listed = [f"{folder / each} ({in_words(left_out_of(counts))})" for each, counts in lost.items()]
        message = (
            f"the dataset {name} has folders without images that can be used: {_some(listed)}; every folder is a "
            "class: put jpg or png files directly into it, or move it away"
        )
        raise DatasetError(message)
    if empty and not skip_broken:
        message = (
            f"the dataset {name} has folders without images: {_some([str(folder / each) for each in empty])}; every "
            "folder is a class: put images there, remove it, or set skip_broken: true for the workload to leave it out"
        )
        raise DatasetError(message)
    return classes, empty, left_out


def _some(listed: Sequence[str]) -> str:
    return ", ".join(listed[:_LISTED]) + (f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else "")


def _no_classes(name: str, folder: Path, found: Mapping[str, Entries], left_out: Counts) -> str:
    wanted = f"expected {folder}/CLASS/*.jpg (or jpeg, png), one folder per class"
    if loose := left_out["outside_class", ""]:
        return f"the dataset {name} has {loose} images outside of any class; {wanted}; {loose_labels(folder)}"
    if deeper := deeper_classes(folder, ENDINGS):
        return f"the dataset {name} has no classes in its folders: {deeper}"
    listed = in_words(left_out_of(left_out))
    but = f", but {listed}" if listed else ""
    if found:
        return f"the dataset {name} has no images in its {len(found)} folders{but}; {wanted}"
    return f"the dataset {name} {f'has no images{but}' if listed else 'is empty'}; {wanted}"


def _has_images(folder: Path, names: Iterable[str]) -> bool:
    """Whether one of the folders ``names`` below another has images that can be listed."""
    for each in names:
        try:
            if entries_of(folder / each, ENDINGS).files:
                return True
        except OSError:
            continue
    return False


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
    with threads() as pool:
        headers = list(pool.map(lambda path: header(folder / path), paths, chunksize=256))
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
    try:
        for each in classes:
            content.update(f"{(folder / each).stat().st_mtime_ns}\0".encode())
        for path, label in files:
            found = (folder / path).stat()  # a file that was written over leaves its folder as it was
            content.update(os.fsencode(path) + b"\0%d\0%d\0%d\0" % (label, found.st_size, found.st_mtime_ns))
    except OSError as error:  # names can be listed, and files not opened
        raise cannot_be_read(str(folder), error) from error
    return cache / "datasets" / "indices" / f"{place}-{content.hexdigest()[:12]}.json"


def _bytes(folder: Path, paths: Iterable[str]) -> int:
    return sum((folder / path).stat().st_size for path in paths)
