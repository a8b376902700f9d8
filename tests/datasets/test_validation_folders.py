"""A user's folder with pictures for training and pictures for validation."""

import json
from pathlib import Path

import numpy as np
import pytest
from image_folders import cut_off, write_folder
from PIL import Image

from steptime.datasets import validation
from steptime.datasets.creation import open_dataset
from steptime.datasets.validation import split
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

    held_out = open_dataset(str(tmp_path / "mine"), cache).validation

    assert held_out is not None
    assert held_out.index is not None
    assert held_out.class_names == ("ant", "cat", "dog")
    assert json.loads(held_out.index.read_text())["files"] == [["dog/0.jpg", 2]]


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


def test_a_train_among_other_vehicles_is_a_class(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "vehicles", classes=("bus", "train"))

    assert open_dataset(str(tmp_path / "vehicles"), cache).class_names == ("bus", "train")


def test_a_folder_for_validation_becomes_the_validation_set_and_all_others_are_trained_on(
    tmp_path: Path, cache: Path
) -> None:
    write_folder(tmp_path / "mine" / "train")
    write_folder(tmp_path / "mine" / "val", each=2)
    dataset = open_dataset(str(tmp_path / "mine"), cache)

    found = split(dataset, (3, 24, 24), cache)

    assert (found.training.samples, found.training.index) == (6, dataset.index)
    with np.load(found.validation["path"]) as file:
        assert (file["images"].shape, file["labels"].tolist()) == ((4, 3, 24, 24), [0, 0, 1, 1])


def test_a_validation_picture_is_the_middle_of_the_whole_one(tmp_path: Path, cache: Path) -> None:
    """Its shorter side is shrunk to 8/7 of what the workload takes, and the middle is cut out."""
    write_folder(tmp_path / "mine" / "train")
    write_folder(tmp_path / "mine" / "val", each=1)
    with Image.open(tmp_path / "mine" / "val" / "cat" / "0.jpg") as picture:
        shrunk = picture.resize((round(32 * 128 / 96), 32), Image.Resampling.BILINEAR)

    found = split(open_dataset(str(tmp_path / "mine"), cache), (3, 28, 28), cache)

    left, top = (shrunk.width - 28) // 2, 2
    wanted = np.asarray(shrunk.crop((left, top, left + 28, top + 28))).transpose(2, 0, 1).astype(int)
    with np.load(found.validation["path"]) as file:
        assert np.abs(file["images"][0] - wanted).mean() < 1.0


def test_a_fifth_of_every_class_of_one_folder_is_held_out(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "mine", each=5)

    found = split(open_dataset(str(tmp_path / "mine"), cache), (3, 24, 24), cache)

    assert found.training.index is not None
    index = json.loads(found.training.index.read_text())
    assert [label for _, label in index["files"]] == 4 * [0] + 4 * [1]
    assert len(index["sizes"]) == found.training.samples == 8
    with np.load(found.validation["path"]) as file:
        assert file["labels"].tolist() == [0, 1]


def test_a_held_out_picture_is_never_trained_on(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "mine", each=5)
    dataset = open_dataset(str(tmp_path / "mine"), cache)

    found = split(dataset, (1, 24, 24), cache)

    assert dataset.index is not None
    assert found.training.index is not None
    everything, trained = (json.loads(each.read_text())["files"] for each in (dataset.index, found.training.index))
    held_out = [path for path, _ in everything if path not in {name for name, _ in trained}]
    assert sorted(Path(path).parent.name for path in held_out) == ["cat", "dog"]


def test_a_validation_set_that_is_made_already_is_taken_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(str(write_folder(tmp_path / "mine")), cache)
    first = split(dataset, (3, 24, 24), cache)
    monkeypatch.setattr(validation, "_make", None)

    assert split(dataset, (3, 24, 24), cache) == first


def test_a_validation_folder_of_other_classes_is_named(tmp_path: Path, cache: Path) -> None:
    dataset = open_dataset(str(write_folder(tmp_path / "mine")), cache)
    other = open_dataset(str(write_folder(tmp_path / "other", classes=("cat", "unicorn"))), cache)

    with pytest.raises(DatasetError, match="only one of the two has dog, unicorn"):
        split(dataset, (3, 24, 24), cache, other)
