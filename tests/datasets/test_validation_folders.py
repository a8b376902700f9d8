"""A user's folder with pictures for training and pictures for validation."""

import json
from pathlib import Path

import pytest
from image_folders import cut_off, write_folder

from steptime.datasets.lookup import open_dataset
from steptime.errors import DatasetError


@pytest.mark.parametrize("held_out", ["validation", "val", "valid", "test"])
def test_the_folder_for_training_is_trained_on_and_the_other_one_validates(
    held_out: str, tmp_path: Path, cache: Path
) -> None:
    write_folder(tmp_path / "mine" / "train")
    write_folder(tmp_path / "mine" / held_out, each=2)

    dataset = open_dataset(str(tmp_path / "mine"), cache)

    assert (dataset.path, dataset.samples) == (tmp_path / "mine" / "train", 6)
    assert dataset.validation is not None
    assert (dataset.validation.path, dataset.validation.samples) == (tmp_path / "mine" / held_out, 4)


def test_a_class_has_the_same_number_in_both_folders(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "mine" / "train", classes=("ant", "cat", "dog"))
    write_folder(tmp_path / "mine" / "val", classes=("dog",), each=1)

    validation = open_dataset(str(tmp_path / "mine"), cache).validation

    assert validation is not None
    assert validation.index is not None
    assert validation.class_names == ("ant", "cat", "dog")
    assert json.loads(validation.index.read_text())["files"] == [["dog/0.jpg", 2]]


def test_a_class_that_nobody_trains_on_is_named(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "mine" / "train")
    write_folder(tmp_path / "mine" / "val", classes=("cat", "unicorn"))

    with pytest.raises(DatasetError, match="does not train on: unicorn"):
        open_dataset(str(tmp_path / "mine"), cache)


def test_a_broken_picture_of_the_validation_folder_is_found(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "mine" / "train")
    write_folder(tmp_path / "mine" / "val")
    cut_off(tmp_path / "mine" / "val" / "cat" / "0.jpg")

    with pytest.raises(DatasetError, match=r"val/cat/0\.jpg: image file is truncated"):
        open_dataset(str(tmp_path / "mine"), cache)


def test_folders_of_classes_have_no_validation(folder: Path, cache: Path) -> None:
    assert open_dataset(str(folder), cache).validation is None


def test_classes_named_train_and_val_are_classes(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "vehicles", classes=("train", "val"))

    assert open_dataset(str(tmp_path / "vehicles"), cache).class_names == ("train", "val")
