"""The validation set of a dataset: a stratified share that is held out, or a folder of its own.

Of images it is arrays of bytes at the workload's size, made once in the cache, so that every framework sees the same
pixels. What is left for training is another dataset of the same form. Of text it is the end of the row of tokens.

The ``loader`` object of job.json, as docs/worker-protocol.md has it.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from steptime.catalog.choices import CACHED
from steptime.datasets.atomic_writes import open_new
from steptime.datasets.dataset import Dataset
from steptime.errors import DatasetError

_IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
"""Mean and deviation of the channels over ImageNet, which most published training uses."""
_GREY_PICTURES = ([0.5], [0.5])
_AREA = (0.08, 1.0)
"""Share of an image that a random rectangle covers; with the next, what most published training on ImageNet uses."""
_ASPECT = (3 / 4, 4 / 3)
"""Width over height of a random rectangle."""
_NORMALS = {1: _GREY_PICTURES, 3: _IMAGENET}


def loader_json(dataset: Dataset, input_shape: tuple[int, ...], loader: str, processes: int = 0) -> dict[str, Any]:
    """Return the ``loader`` object that feeds a workload from disk.

    Args:
        dataset: the samples that are loaded.
        input_shape: of the workload, per sample, channels first.
        loader: the kind of the loader.
        processes: helper processes of each worker.

    Raises DatasetError when the dataset cannot give samples of that shape.
    """
    found = dataset_json(dataset, input_shape)
    if dataset.form == "tokens" and loader == CACHED.name:
        found["mapped"] = True
    return {"kind": loader, "processes": processes, "dataset": found}


def dataset_json(dataset: Dataset, input_shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the ``dataset`` of a ``loader`` object; arguments and errors are those of ``loader_json``."""
    how = {"arrays": _arrays, "tokens": _tokens}.get(dataset.form, _image_folder)
    return {**how(dataset, input_shape), "samples": dataset.samples_of(input_shape)}


def _tokens(dataset: Dataset, input_shape: tuple[int, ...]) -> dict[str, Any]:
    if dataset.samples_of(input_shape) < 1:
        message = (
            f"the dataset {dataset.name} has {dataset.samples} tokens, fewer than a sequence of {input_shape[0]} and "
            "the token after it; give it more text, or the workload a shorter sequence"
        )
        raise DatasetError(message)
    part = {} if dataset.first_token is None else {"part": [dataset.first_token, dataset.samples]}
    return {"form": "tokens", "path": str(dataset.path), **part}


def _arrays(dataset: Dataset, input_shape: tuple[int, ...]) -> dict[str, Any]:
    if dataset.input_shape != tuple(input_shape):
        message = (
            f"the dataset {dataset.name} has samples of {_words(dataset.input_shape)}, the workload wants "
            f"{_words(input_shape)}; give the workload that input shape, or choose another dataset"
        )
        raise DatasetError(message)
    mean, std = _NORMALS[input_shape[0]]
    return {"form": "arrays", "path": str(dataset.path), "transform": {"mean": mean, "std": std}}


def _image_folder(dataset: Dataset, input_shape: tuple[int, ...]) -> dict[str, Any]:
    if len(input_shape) != 3 or input_shape[0] not in _NORMALS:  # noqa: PLR2004 - channels, height, width
        message = (
            f"the dataset {dataset.name} gives images of 1 or 3 channels, the workload wants {_words(input_shape)}; "
            "give the workload an input shape such as 3x64x64"
        )
        raise DatasetError(message)
    channels, height, width = input_shape
    mean, std = _NORMALS[channels]
    transform = {
        "size": [height, width],
        "area": list(_AREA),
        "aspect": list(_ASPECT),
        "flip": True,
        "mean": mean,
        "std": std,
    }
    return {"form": dataset.form, "root": str(dataset.path), "index": str(dataset.index), "transform": transform}


def _words(shape: tuple[int, ...] | None) -> str:
    return "x".join(map(str, shape or ()))


HELD_OUT = 0.2
"""The share of every class that is held out."""
_SEED = 0
_MOST_BYTES = 2 * 2**30
"""Of the validation set, which every worker holds in memory."""
_RULE = "2"
"""Of the choice and the pixels; another one makes the cache's files anew."""
_GREY = 1


@dataclass(frozen=True)
class Split:
    """A dataset apart from its validation set."""

    training: Dataset
    validation: dict[str, Any]
    """The job's ``validation``: an ``arrays`` dataset, as a loader has it."""


def held_out(labels: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which samples are held out: ``HELD_OUT`` of every class, by a fixed seed; one at least of two or more."""
    all_labels = np.asarray(labels)
    chosen = np.zeros(len(all_labels), dtype=bool)
    stream = np.random.RandomState(_SEED)
    for label in np.unique(all_labels):
        members = np.flatnonzero(all_labels == label)
        count = max(round(HELD_OUT * len(members)), 1 if len(members) > 1 else 0)
        chosen[stream.permutation(members)[:count]] = True
    return chosen


def split(dataset: Dataset, input_shape: tuple[int, ...], cache: Path, own: Dataset | None = None) -> Split:
    """Return ``dataset`` without its validation set, and the set.

    Args:
        dataset: with all samples, or those for training only.
        input_shape: of the workload, channels first.
        cache: the user's cache folder.
        own: the validation set as a dataset of its own, instead of that of ``dataset``; a share of ``dataset`` is held
            out where there is neither.

    Raises DatasetError where the set has other classes, has no sample, does not fit in memory or cannot be written.
    """
    own = own or dataset.validation
    if dataset.form == "tokens":
        return _split_row(dataset, input_shape, own)
    if own is not None and own.class_names != dataset.class_names:
        odd = sorted(set(own.class_names) ^ set(dataset.class_names))[:5]
        message = (
            f"the validation folder {own.name} has not the classes of {dataset.name} (only one of the two has "
            f"{', '.join(odd)}); give both the same folders of classes"
        )
        raise DatasetError(message)
    folder = cache / "datasets" / "splits" / _address(dataset, input_shape, own)
    try:
        if not (folder / "facts.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            facts = _make(dataset, input_shape, folder, own)
            _write_json(folder / "facts.json", facts)
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    except OSError as error:
        message = f"the validation set of {dataset.name} cannot be written to {folder}: {error.strerror}"
        raise DatasetError(message) from error
    training = dataset
    if own is None:
        training = replace(dataset, samples=facts["training"])
        if dataset.form == "arrays":
            training = replace(training, path=folder / "training.npz")
        else:
            training = replace(training, index=folder / "training.json")
    arrays = replace(
        dataset,
        form="arrays",
        path=folder / "validation.npz",
        index=None,
        samples=facts["validation"],
        input_shape=tuple(input_shape),
    )
    return Split(training, dataset_json(arrays, tuple(input_shape)))


def _split_row(dataset: Dataset, input_shape: tuple[int, ...], own: Dataset | None) -> Split:
    """Return a row of tokens without its end, or whole where there is another row for validation."""
    training = dataset
    if own is None:
        kept = round((1 - HELD_OUT) * dataset.samples)
        training = replace(dataset, samples=kept, first_token=0)
        own = replace(dataset, samples=dataset.samples - kept, first_token=kept)
    if own.samples_of(input_shape) < 1:
        message = (
            f"the {own.samples} tokens for validation of {dataset.name} are fewer than a sequence of {input_shape[0]} "
            "and the token after it; give it more text, or the workload a shorter sequence"
        )
        raise DatasetError(message)
    return Split(training, dataset_json(own, input_shape))


def _address(dataset: Dataset, input_shape: tuple[int, ...], own: Dataset | None) -> str:
    digest = hashlib.sha256(f"{_RULE} {list(input_shape)}".encode())
    for each in filter(None, (dataset, own)):
        digest.update(os.fsencode(each.path))
        digest.update((each.index or each.path).read_bytes())
    return digest.hexdigest()[:16]


def _make(dataset: Dataset, input_shape: tuple[int, ...], folder: Path, own: Dataset | None) -> dict[str, int]:
    if dataset.form == "arrays":
        with np.load(dataset.path, allow_pickle=False) as file:
            images, labels = file["images"], file["labels"]
        out = held_out(labels)
        _write_arrays(folder / "training.npz", images[~out], labels[~out])
        _write_arrays(folder / "validation.npz", images[out], labels[out])
        return {"training": int((~out).sum()), "validation": int(out.sum())}
    files = _files(dataset)
    training, validation = files, _files(own) if own else []
    if own is None:
        out = held_out([label for _, label in files])
        training = [each for each, chosen in zip(files, out, strict=True) if not chosen]
        validation = [each for each, chosen in zip(files, out, strict=True) if chosen]
        sizes = [each for each, chosen in zip(_index(dataset)["sizes"], out, strict=True) if not chosen]
        index = {"files": training, "classes": list(dataset.class_names), "sizes": sizes}
        _write_json(folder / "training.json", index)
    root = (own or dataset).path
    need = len(validation) * int(np.prod(input_shape))
    if not validation or need > _MOST_BYTES:
        message = (
            f"the validation set of {dataset.name} has {len(validation)} images, which take {need / 2**30:.1f} GiB as "
            f"pixels; it needs one at least, and {_MOST_BYTES / 2**30:.0f} GiB at most: name a folder with fewer"
        )
        raise DatasetError(message)
    images = np.stack([_pixels(root / name, input_shape) for name, _ in validation])
    _write_arrays(folder / "validation.npz", images, np.array([label for _, label in validation], dtype=np.int64))
    return {"training": len(training), "validation": len(validation)}


def _files(dataset: Dataset) -> list[tuple[str, int]]:
    return [(name, label) for name, label in _index(dataset)["files"]]


def _index(dataset: Dataset) -> dict[str, Any]:
    if dataset.index is None:
        return {"files": [], "sizes": []}
    content: dict[str, Any] = json.loads(dataset.index.read_text(encoding="utf-8"))
    return content


def _pixels(path: Path, input_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an image in the middle of its size, as evaluation does: the shorter side is 8/7 of the workload's."""
    channels, height, width = input_shape
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if channels == _GREY else "RGB")
    except OSError as error:
        message = f"{path} cannot be decoded: {error}; replace or delete it"
        raise DatasetError(message) from error
    scale = max(height, width) * 8 / 7 / min(image.size)
    sides = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    image = image.resize(sides, Image.Resampling.BILINEAR)
    left, top = (sides[0] - width) // 2, (sides[1] - height) // 2
    pixels = np.asarray(image.crop((left, top, left + width, top + height)), dtype=np.uint8)
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def _write_arrays(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    with open_new(path) as file:
        np.savez(file, images=images, labels=labels)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with open_new(path) as file:
        file.write(json.dumps(value).encode())
