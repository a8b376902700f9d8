"""Built-in datasets in a folder of the user's: their number, size and form, and what happens on a full disk."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from steptime.datasets.atomic_writes import require_space
from steptime.datasets.creation import expected_bytes, make, open_dataset
from steptime.datasets.dataset import Dataset
from steptime.datasets.folder_entries import write_pictures
from steptime.datasets.stored_forms import store
from steptime.errors import DatasetError


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", place], check=False).returncode:
        pytest.skip("only root mounts a small file system")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_becomes_full_is_named_and_nothing_is_left(interpreter: Path, small_disk: Path) -> None:
    (small_disk / "thesis.tex").write_text("mine")

    with pytest.raises(DatasetError, match=r"the disk of .*/small became full .* its part was removed"):
        make("photos", small_disk / "photos", interpreter, count=400)

    assert {path.name: path.read_text() for path in small_disk.iterdir()} == {"thesis.tex": "mine"}


def test_pictures_on_a_disk_that_becomes_full_leave_nothing(digits: Dataset, small_disk: Path) -> None:
    with pytest.raises(DatasetError, match="No space left on device; nothing of them was left"):
        write_pictures(digits, small_disk / "digits", (64, 64), None, lambda *_: None)

    assert list(small_disk.iterdir()) == []


def test_a_dataset_that_does_not_fit_is_refused_before_anything_is_written(small_disk: Path) -> None:
    with pytest.raises(DatasetError, match=r"needs about 9\.54 MiB, and the disk of .* has .* left"):
        require_space("photos", small_disk / "photos", 10_000_000)


def test_the_expected_size_is_that_of_what_is_made(interpreter: Path, tmp_path: Path) -> None:
    made = make("photos", tmp_path / "photos", interpreter, count=180)

    expected = expected_bytes("photos", interpreter, count=180)

    assert expected == pytest.approx(made.bytes, rel=0.25)


def test_progress_is_told_while_photographs_are_made(interpreter: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    make("photos", tmp_path / "photos", interpreter, lambda done, total: told.append((done, total)), count=60)

    assert told == [(20, 60), (40, 60), (60, 60)]


def test_digits_become_a_folder_of_classes_that_a_study_can_name(digits: Dataset, tmp_path: Path) -> None:
    write_pictures(digits, tmp_path / "digits", None, 100, lambda *_: None)

    found = open_dataset(str(tmp_path / "digits"), tmp_path / "cache")
    assert (found.samples, found.class_names) == (100, digits.class_names)


def test_a_digit_as_a_picture_has_the_same_pixels(digits: Dataset, tmp_path: Path) -> None:
    write_pictures(digits, tmp_path / "digits", None, 10, lambda *_: None)
    with np.load(digits.path) as file:
        image, label = file["images"][3], file["labels"][3]

    with Image.open(tmp_path / "digits" / str(label) / "00003.png") as picture:
        assert np.array_equal(np.asarray(picture), image[0])


def test_digits_have_the_size_that_is_asked_for(digits: Dataset, tmp_path: Path) -> None:
    write_pictures(digits, tmp_path / "digits", (40, 30), 10, lambda *_: None)

    with Image.open(next((tmp_path / "digits").glob("*/00000.png"))) as picture:
        assert picture.size == (40, 30)


def test_pictures_never_replace_what_is_there(digits: Dataset, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(DatasetError, match="holds something already"):
        write_pictures(digits, tmp_path, None, 10, lambda *_: None)


@pytest.fixture
def smaller_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 60 kB, of which nobody is warned ahead."""
    place = tmp_path / "smaller"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60k", "none", place], check=False).returncode:
        pytest.skip("only root mounts a small file system")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=10**12, used=0, free=10**12))
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("form", ["tar_shards", "tfrecord", "recordio", "decoded"])
def test_shards_on_a_disk_that_becomes_full_are_named_and_leave_nothing(
    form: str, photos: Dataset, smaller_disk: Path
) -> None:
    (smaller_disk / "thesis.tex").write_text("mine")

    with pytest.raises(DatasetError, match="No space left on device"):
        store(photos, form, smaller_disk / "shards")

    assert {path.name: path.read_text() for path in smaller_disk.iterdir()} == {"thesis.tex": "mine"}
