"""A dataset on disk, in one of its forms, and what of a user's folder it uses and leaves out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from steptime.errors import DatasetError
from steptime.units import format_count

PICTURE_ENDINGS = (
    *("apng", "avif", "bmp", "gif", "heic", "heif", "j2k", "jfif", "jif", "jp2", "jpe", "jxl", "mpo", "pbm", "pgm"),
    *("pnm", "ppm", "svg", "tga", "tif", "tiff", "webp"),
)
"""Of pictures that are not read: Pillow, OpenCV, TensorFlow and DALI read different ones among them, and not alike."""

Reason = Literal[
    "format",
    "deeper_folder",
    "outside_class",
    "no_classes",
    "unused_folder",
    "dangling_link",
    "linked_folder",
    "special_file",
    "unreadable",
    "empty_class",
    "empty_document",
    "litter",
]
_WORDS: Mapping[Reason, str] = {
    "deeper_folder": "{} in deeper folders",
    "outside_class": "{} outside of any class",
    "no_classes": "{} in {kind}, which has no classes",
    "unused_folder": "{} in {kind}, not used",
    "dangling_link": "{} dangling link{s}",
    "linked_folder": "{} link{s} to folders within a class",
    "special_file": "{} pipe{s} or devices",
    "unreadable": "{} unreadable",
    "empty_class": "{} empty class folder{s}",
    "empty_document": "{} empty document{s}",
}
"""Of the reasons that need no more than a count, in the order of a sentence."""
_NAMED = 4
"""Endings that a sentence names, of files other than pictures."""


@dataclass(frozen=True)
class LeftOut:
    """How many files or folders are not used, for one reason."""

    reason: Reason
    kind: str
    """The ending of ``format``, the name of ``litter``, ``no_classes`` and ``unused_folder``; otherwise empty."""
    count: int


Counts = Counter[tuple[Reason, str]]
"""By reason and kind."""


def left_out_of(counts: Counts) -> tuple[LeftOut, ...]:
    """Return counts in the order of their reasons, most frequent kinds first."""
    reasons = get_args(Reason)
    found = [LeftOut(reason, kind, count) for (reason, kind), count in counts.items() if count]
    return tuple(sorted(found, key=lambda each: (reasons.index(each.reason), -each.count, each.kind)))


@dataclass(frozen=True)
class Contents:
    """What of a folder of images, or of text, is used, and what is not."""

    samples: int
    """That are trained on; of text, tokens."""
    classes: int
    """Of text, the vocabulary; 0 where the workload decides."""
    validation: int = 0
    """Samples in the folder for validation."""
    left_out: tuple[LeftOut, ...] = ()
    documents: int | None = None
    """Of text; None of images."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Contents":
        """Return what ``dataclasses.asdict`` made an object of; a reason of a newer version is left out."""
        known = [each for each in value.get("left_out", ()) if each["reason"] in get_args(Reason)]
        left_out = tuple(LeftOut(cast("Reason", each["reason"]), each["kind"], each["count"]) for each in known)
        counts = (value["samples"], value["classes"], value.get("validation", 0))
        return cls(*counts, left_out, value.get("documents"))

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``from_json`` reads; that of images has no ``documents``."""
        return {name: each for name, each in asdict(self).items() if name != "documents" or each is not None}

    def in_words(self, name: str) -> str:
        """Return ``photos: 1,200 images of 10 classes; left out: 14 webp, 3 in deeper folders, 1 dangling link``."""
        if self.documents is None:
            used = f"{format_count(self.samples, 'image')} of {format_count(self.classes, 'class', 'classes')}"
        else:
            of = f" of a vocabulary of {self.classes:,}" if self.classes else ""
            documents = format_count(self.documents, "document")
            used = f"{format_count(self.samples, 'token')}{of} in {documents}"
        text = f"{name}: {used}"
        text += f", {self.validation:,} for validation" if self.validation else ""
        unused = [*_formats_in_words(self.left_out), *_others_in_words(self.left_out)]
        litter = [f"{each.count:,} {each.kind}" for each in self.left_out if each.reason == "litter"]
        text += f"; left out: {', '.join(unused)}" if unused else ""
        return f"{text}; passed over: {', '.join(litter)}" if litter else text


def in_words(left_out: Iterable[LeftOut]) -> str:
    """Return what is left out, litter apart: ``14 webp, 3 in deeper folders``."""
    found = tuple(left_out)
    return ", ".join([*_formats_in_words(found, advised=False), *_others_in_words(found)])


def _formats_in_words(left_out: Iterable[LeftOut], *, advised: bool = True) -> list[str]:
    formats = [each for each in left_out if each.reason == "format"]
    pictures = [f"{each.count:,} {each.kind}" for each in formats if each.kind in PICTURE_ENDINGS]
    if pictures and advised:
        pictures[-1] += " (frameworks decode these differently, or not at all: save them as jpg or png)"
    others = [each for each in formats if each.kind not in PICTURE_ENDINGS]
    named = [f"{each.count:,} {each.kind or 'without an ending'}" for each in others[:_NAMED]]
    rest = sum(each.count for each in others[_NAMED:])
    return [*pictures, *named, *([f"{rest:,} of other endings"] if rest else [])]


def _others_in_words(left_out: Iterable[LeftOut]) -> list[str]:
    found = tuple(left_out)
    return [
        words.format(f"{each.count:,}", kind=each.kind, s="" if each.count == 1 else "s")
        for reason, words in _WORDS.items()
        for each in found
        if each.reason == reason
    ]


IN_MEMORY = ("arrays", "tokens")
"""Forms that are one file."""


@dataclass(frozen=True)
class Dataset:
    """Samples on disk in one of the forms of docs/worker-protocol.md."""

    name: str
    """A built-in's name, or the folder as the user wrote it."""
    form: Literal["arrays", "image_folder", "tokens", "decoded", "tar_shards", "tfrecord", "recordio"]
    path: Path
    """The file of ``IN_MEMORY``, the folder of all others; absolute."""
    index: Path | None
    """``index.json`` of all forms but ``IN_MEMORY``."""
    samples: int
    """Of ``tokens``, how many tokens; ``samples_of`` counts sequences."""
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...] | None
    """Channels, height, width; None if the loader cuts the shape that is asked for."""
    bytes: int
    """Of the files on disk."""
    validation: "Dataset | None" = None
    """The samples that are not trained on, with the same classes; None if the dataset has no folder of them."""
    skipped: tuple[str, ...] = ()
    """What was left out because it is broken, and why; only where that was asked for."""
    left_out: tuple[LeftOut, ...] = ()
    """All that is not used of a user's folder, counted, ``skipped`` among it; that for validation included."""
    documents: int | None = None
    """Of a user's text; None of all else."""
    first_token: int | None = None
    """Of a part of a row of tokens, which ``samples`` end; None of a whole one."""

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def contents(self) -> Contents:
        """What of the folder is used, and what is not."""
        validation = self.validation.samples if self.validation else 0
        return Contents(self.samples, self.classes, validation, self.left_out, self.documents)

    @property
    def location(self) -> Path:
        """The folder that holds it."""
        return self.path.parent if self.form in IN_MEMORY else self.path

    def samples_of(self, input_shape: tuple[int, ...]) -> int:
        """Return how many samples of a shape there are: of tokens, sequences that share none but their last target."""
        return (self.samples - 1) // input_shape[0] if self.form == "tokens" else self.samples


def require_batch(samples: int, global_batch: int) -> None:
    """Raise DatasetError unless the samples of an epoch fill one step of all workers."""
    if samples < global_batch:
        message = (
            f"{samples} samples do not fill one step of {global_batch} over all workers; "
            f"use a smaller batch, fewer workers, or at least {global_batch} samples"
        )
        raise DatasetError(message)
