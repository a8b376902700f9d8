"""Folders of pictures that people have and that are not one folder per class: what each is, and the next step.

Names of splits (``train``, ``val``, ``test``) and of what a folder holds (``images``, ``labels``, ``masks``) are not
names of classes where they are the only ones: two splits would be trained on as two classes.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from steptime.datasets.folder_entries import Entries, entries_of

TRAINING = "train"
VALIDATION = ("validation", "val", "valid", "test")
"""Names of the folder of samples that are not trained on; the first that holds classes is taken."""
_SPLIT = re.compile(
    r"(train|val|valid|validation|test|dev|eval)(ing|uation|set|_?images|_?data|_?split)?[-_]?\d*", re.IGNORECASE
)
_CONTENT = re.compile(
    r"(jpeg|png|all|raw|train|val|test)?[-_]?(images?|imgs?|pictures?|photos?|data|dataset|frames|labels?|annotations?|"
    r"annots?|masks?|bboxes|boxes|gt|segmentations?|segmentation(class|object))[-_]?(2|\d{4})?",
    re.IGNORECASE,
)
_OF_BOXES = re.compile(r"labels?|annotations?|annots?|bboxes|boxes", re.IGNORECASE)
_LABEL_FILE = re.compile(r".*\.(csv|tsv|json|xml|txt|mat|parquet)", re.IGNORECASE)
_TABLE = re.compile(r".*labels?.*|.*\.(csv|tsv|parquet)", re.IGNORECASE)
"""A file that has the labels of all pictures; Tiny ImageNet has one of boxes beside those of each class."""
_DEEPEST = 4
_MOST = 300
"""Folders that are looked at for one with classes."""
_LISTED = 4


def is_split(name: str) -> bool:
    """Whether a folder of this name holds one part of a dataset."""
    return _SPLIT.fullmatch(name) is not None


def is_class(name: str) -> bool:
    """Whether a folder of this name may be a class where all others are likewise."""
    return not is_split(name) and _CONTENT.fullmatch(name) is None


def layout_mistake(folder: Path, classes: Sequence[str], endings: Sequence[str]) -> str:
    """Return what a folder is whose folders of pictures are not classes, and the next step; empty if they may be.

    Args:
        folder: that would have the classes.
        classes: its folders with pictures in them.
        endings: of pictures.
    """
    if not classes or any(is_class(each) for each in classes):
        return ""
    listed = ", ".join(classes[:_LISTED])
    several = len(classes) > 1
    if all(is_split(each) for each in classes):
        what = f"{listed} in {folder} {'are splits' if several else 'is a split'} of a dataset and not classes"
    else:
        named = "are named after what they hold" if several else "is named after what it holds"
        what = f"{listed} in {folder} {named}, not after classes"
    return f"{what}{_labels(folder, classes, endings)}"


def _labels(folder: Path, classes: Sequence[str], endings: Sequence[str]) -> str:
    """Return where the labels of pictures without class folders seem to be, and the next step."""
    if folder.name.lower() in {"images", "imgs"} and any(_OF_BOXES.fullmatch(each) for each in _names(folder.parent)):
        return f"; as for YOLO, {_boxes(folder.parent)}"
    if (
        len(classes) == 1
        and is_class(folder.name)
        and not is_split(classes[0])
        and not any(_TABLE.fullmatch(each) for each in _files(folder))
        and any(
            _above(folder, sibling, classes[0], endings) for sibling in _names(folder.parent) if sibling != folder.name
        )
    ):
        return f"; the class is {folder.name}: {_move_up(folder.parent, classes[0])}"
    boxes = [each for each in _names(folder) if _OF_BOXES.fullmatch(each) and each not in classes]
    if boxes:
        return f"; {_boxes(folder)}"
    return f"; {loose_labels(folder)}"


def _boxes(folder: Path) -> str:
    return (
        f"the labels in {folder} are of boxes in pictures, which no workload trains on: cut one picture of each box "
        "into a folder of its class, or name a folder of pictures with one folder per class"
    )


def _move_up(folder: Path, name: str) -> str:
    move = f'for each in */; do mv "$each"{quote(name)}/* "$each"; done'
    named = folder.parent if folder.name == TRAINING else folder
    return f"move its pictures up, as by (cd {quote(str(folder))} && {move}), and name {named}"


def loose_labels(folder: Path) -> str:
    """Return what to do with pictures that lie beside each other, and names of files that may have their labels."""
    files = [
        each
        for place in (folder, folder.parent)
        for each in _files(place)
        if "label" in each.lower() or place == folder
    ]
    if named := [each for each in files if _LABEL_FILE.fullmatch(each)]:
        labels = f"labels in {', '.join(named[:_LISTED])} are not read"
    else:
        labels = "labels are read from names of folders alone"
    return f"{labels}: make one folder per class, and move each picture into that of its label"


def deeper_classes(folder: Path, endings: Sequence[str]) -> str:
    """Return the next step for a folder without pictures in its folders, if what lies deeper is known; else empty."""
    holding = [each for each in _below(folder) if _has_classes(each, endings)]
    if holding:
        return _name(folder, next((each for each in holding if not _validates(each.name)), holding[0]))
    return (
        _yolo(folder) or _tiny(folder, endings) or _tiny(folder / TRAINING, endings) or _deeper_splits(folder, endings)
    )


def _yolo(folder: Path) -> str:
    names = _names(folder)
    pictures = next((each for each in names if each.lower() in {"images", "imgs"}), None)
    boxes = next((each for each in names if _OF_BOXES.fullmatch(each)), None)
    return f"{pictures} and {boxes} in {folder} are as for YOLO: {_boxes(folder)}" if pictures and boxes else ""


def _tiny(folder: Path, endings: Sequence[str]) -> str:
    """Return what to do where every class has its pictures in one folder of the same name; else empty."""
    deeper = {name for each in _names(folder) if is_class(each) for name in _holding(folder / each, endings)}
    if len(deeper) != 1 or is_class(name := deeper.pop()):
        return ""
    return f"pictures of each class of {folder} lie in CLASS/{name}, as in Tiny ImageNet: {_move_up(folder, name)}"


def _deeper_splits(folder: Path, endings: Sequence[str]) -> str:
    for each in _names(folder):
        if not is_class(each) and (deeper := _holding(folder / each, endings)):
            return layout_mistake(folder / each, deeper, endings)
    return ""


def _holding(folder: Path, endings: Sequence[str]) -> list[str]:
    """Return the folders of a folder that have pictures."""
    return [each for each in _names(folder) if _files(folder / each, endings)]


def _name(folder: Path, place: Path) -> str:
    """Return how to name the folder of classes that was found."""
    split = place.name
    if not is_split(split):
        return f"its classes lie deeper; name {place} instead"
    beside = [each for each in _names(place.parent) if each != split and is_split(each)]
    if split == TRAINING and (place.parent == folder or not beside):
        beside_it = f"add a folder {place.parent / VALIDATION[0]} with the same classes"
        return f"its classes lie deeper; name {place} instead, or {beside_it}"
    if split == TRAINING and set(beside) & set(VALIDATION):
        return f"its classes lie deeper; name {place.parent} instead"
    rename = (
        f"; or rename {split} to {TRAINING} and {beside[0]} to {VALIDATION[0]}, and name {place.parent}"
        if beside
        else ""
    )
    return f"its classes lie deeper; name {place} instead{rename}"


def _below(folder: Path) -> Iterator[Path]:
    """Yield folders below another, nearer ones first, and those for training before others; no link is followed."""
    layer, seen = [folder], 0
    for _ in range(_DEEPEST):
        layer = [place / name for place in layer for name in sorted(_names(place), key=_training_first)]
        for place in layer:
            seen += 1
            if seen > _MOST:
                return
            yield place


def _validates(name: str) -> bool:
    return is_split(name) and not name.lower().startswith(TRAINING)


def _training_first(name: str) -> tuple[bool, bool, str]:
    return (not name.lower().startswith("train"), is_split(name), name)


def _has_classes(folder: Path, endings: Sequence[str]) -> bool:
    return any(is_class(each) for each in _holding(folder, endings))


def _above(folder: Path, sibling: str, name: str, endings: Sequence[str]) -> bool:
    return bool(_files(folder.parent / sibling / name, endings))


def _names(folder: Path) -> list[str]:
    found = _entries(folder, ())
    return [each for each in found.folders if each not in found.linked]


def _files(folder: Path, endings: Sequence[str] = ("",)) -> list[str]:
    return _entries(folder, endings).files


def _entries(folder: Path, endings: Sequence[str]) -> Entries:
    try:
        return entries_of(folder, endings)
    except OSError:  # what cannot be listed suggests nothing
        return Entries()
