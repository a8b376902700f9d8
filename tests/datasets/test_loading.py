"""What workers are told about a dataset, read back by the workers' own code."""

from pathlib import Path

import pytest

from steptime.datasets.creation import open_dataset
from steptime.datasets.dataset import Dataset, require_batch
from steptime.datasets.validation import loader_json
from steptime.errors import DatasetError
from steptime.worker.samples import read_arrays, read_index


def test_workers_read_the_arrays_that_they_are_told_of(digits: Dataset) -> None:
    loader = loader_json(digits, (1, 28, 28), "native", processes=0)

    images, labels = read_arrays(loader["dataset"])

    assert (images.shape, labels.shape) == ((1797, 1, 28, 28), (1797,))
    assert loader["dataset"]["transform"] == {"mean": [0.5], "std": [0.5]}


def test_workers_read_the_index_that_they_are_told_of(photos: Dataset) -> None:
    loader = loader_json(photos, (3, 64, 64), "native", processes=1)

    paths, labels = read_index(loader["dataset"])

    assert len(paths) == len(labels) == 40
    assert all(Path(path).exists() for path in paths)


def test_the_protocols_example_is_what_is_written(folder: Path, cache: Path) -> None:
    dataset = open_dataset(str(folder), cache)

    assert loader_json(dataset, (3, 64, 64), "native", processes=1) == {
        "kind": "native",
        "processes": 1,
        "dataset": {
            "form": "image_folder",
            "root": str(folder),
            "index": str(dataset.index),
            "samples": 6,
            "transform": {
                "size": [64, 64],
                "area": [0.08, 1.0],
                "aspect": [0.75, 4 / 3],
                "flip": True,
                "mean": [0.485, 0.456, 0.406],
                "std": [0.229, 0.224, 0.225],
            },
        },
    }


def test_arrays_of_another_shape_are_refused_with_both_shapes(digits: Dataset) -> None:
    with pytest.raises(DatasetError, match=r"samples of 1x28x28, the workload wants 3x64x64"):
        loader_json(digits, (3, 64, 64), "native")


def test_images_are_not_given_to_a_workload_of_other_channels(folder: Path, cache: Path) -> None:
    with pytest.raises(DatasetError, match="workload wants 784"):
        loader_json(open_dataset(str(folder), cache), (784,), "native")


def test_too_few_samples_for_a_step_are_refused_with_the_remedy() -> None:
    with pytest.raises(DatasetError, match="6 samples do not fill one step of 8 over all workers; use a smaller batch"):
        require_batch(6, 8)


def test_one_step_per_epoch_is_enough() -> None:
    require_batch(8, 8)
