"""The ``loader`` object of job.json, as docs/worker-protocol.md has it."""

from typing import Any

from steptime.catalog.loaders import CACHED
from steptime.datasets.dataset import Dataset
from steptime.errors import DatasetError

_IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
"""Mean and deviation of the channels over ImageNet, which most published training uses."""
_GREY = ([0.5], [0.5])
_AREA = (0.08, 1.0)
"""Share of an image that a random rectangle covers; with the next, what most published training on ImageNet uses."""
_ASPECT = (3 / 4, 4 / 3)
"""Width over height of a random rectangle."""
_NORMALS = {1: _GREY, 3: _IMAGENET}


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
            "the token behind it; give it more text, or the workload a shorter sequence"
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
