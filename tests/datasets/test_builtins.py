"""The built-in datasets as they are made, from real pictures."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from steptime.datasets.atomic_writes import put_in_place, require_unchanged
from steptime.datasets.builtins import BUILTINS, names
from steptime.datasets.creation import (
    _own_files,
    address_of,
    builtin_folder,
    chosen_parameters,
    find_builtin,
    made_dataset,
    make,
    open_dataset,
    read_marker,
    write_marker,
)
from steptime.datasets.dataset import Dataset
from steptime.errors import DatasetError
from steptime.process_identity import ProcessIdentity, start_ticks

_DIGIT_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
"""Samples of each digit in the test set of the UCI repository's "Optical Recognition of Handwritten Digits"."""


def test_the_digits_have_the_published_number_of_samples_per_class(digits: Dataset) -> None:
    with np.load(digits.path) as file:
        images, labels = file["images"], file["labels"]

    assert np.bincount(labels).tolist() == _DIGIT_COUNTS
    assert (images.dtype, images.shape, labels.dtype) == (np.uint8, (1797, 1, 28, 28), np.int64)


def test_the_digits_are_framed_as_in_mnist(digits: Dataset) -> None:
    with np.load(digits.path) as file:
        images = file["images"]

    assert images.max() > 250
    inside = images[:, :, 4:24, 4:24].sum(dtype=np.int64)
    assert images.sum(dtype=np.int64) == inside > 0


def test_the_digits_can_be_told_apart(digits: Dataset) -> None:
    with np.load(digits.path) as file:
        images, labels = file["images"].reshape(1797, -1).astype(float), file["labels"]
    means = np.stack([images[:1000][labels[:1000] == digit].mean(axis=0) for digit in range(10)])

    distances = ((images[1000:, np.newaxis] - means) ** 2).sum(axis=2)

    assert np.mean(distances.argmin(axis=1) == labels[1000:]) > 0.8


def test_the_photographs_are_shared_evenly_among_the_classes(photos: Dataset) -> None:
    assert photos.index is not None
    index = json.loads(photos.index.read_text())

    assert np.bincount([label for _, label in index["files"]]).tolist() == [3] * 4 + [2] * 14
    assert index["classes"] == list(photos.class_names)


def test_every_photograph_is_a_jpeg_of_the_wanted_size_in_the_folder_of_its_class(photos: Dataset) -> None:
    assert photos.index is not None
    for name, label in json.loads(photos.index.read_text())["files"]:
        with Image.open(photos.path / name) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (96, 96))
        assert name.split("/")[0] == photos.class_names[label]


def test_photographs_are_pictures_and_not_all_the_same(photos: Dataset) -> None:
    files = [path.read_bytes() for path in photos.path.glob("*/*.jpg")]

    assert len(set(files)) == photos.samples == 40


def test_the_size_of_photographs_can_be_chosen(interpreter: Path, tmp_path: Path) -> None:
    made = make("photos", tmp_path / "large", interpreter, count=18, width=200, height=120)

    with Image.open(made.path / "text" / "text-00000.jpg") as image:
        assert image.size == (200, 120)


@pytest.mark.parametrize(("name", "parameters"), [("digits", {}), ("photos", {"count": 20}), ("text", {})])
def test_the_same_dataset_has_the_same_bytes(
    name: str, parameters: dict[str, int], interpreter: Path, tmp_path: Path
) -> None:
    for place in ("first", "second"):
        make(name, tmp_path / place, interpreter, **parameters)

    first, second = ((tmp_path / place / "dataset.json").read_bytes() for place in ("first", "second"))
    assert first == second


def test_another_seed_cuts_other_photographs(interpreter: Path, tmp_path: Path) -> None:
    made = [make("photos", tmp_path / str(seed), interpreter, count=18, seed=seed) for seed in (0, 1)]

    first, second = ((dataset.path / "cat" / "cat-00000.jpg").read_bytes() for dataset in made)
    assert first != second


def test_a_dataset_in_the_cache_is_found_with_all_its_facts(interpreter: Path, cache: Path) -> None:
    made = make("digits", builtin_folder("digits", cache), interpreter)

    assert open_dataset("digits", cache) == made
    assert (made.samples, made.classes, made.input_shape) == (1797, 10, (1, 28, 28))


def test_a_damaged_dataset_is_made_again(interpreter: Path, cache: Path) -> None:
    place = builtin_folder("digits", cache)
    whole = make("digits", place, interpreter).path.read_bytes()
    (place / "digits.npz").write_bytes(whole[:-1])
    assert find_builtin("digits", cache) is None

    assert make("digits", place, interpreter).path.read_bytes() == whole


def test_other_parameters_are_another_dataset(cache: Path) -> None:
    assert builtin_folder("photos", cache, width=64) != builtin_folder("photos", cache)


def test_a_built_in_dataset_that_is_not_made_says_so(cache: Path) -> None:
    with pytest.raises(DatasetError, match="photos has not been made"):
        open_dataset("photos", cache)


def test_nothing_of_the_users_is_overwritten(interpreter: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(DatasetError, match="holds something already"):
        make("digits", tmp_path, interpreter)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_folder_is_filled(interpreter: Path, tmp_path: Path) -> None:
    assert make("digits", tmp_path, interpreter).samples == 1797


def test_an_interpreter_without_the_pictures_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="scikit-learn is not installed"):
        make("digits", tmp_path / "digits", Path(sys.executable))

    assert list(tmp_path.iterdir()) == []


def test_all_wrong_parameters_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        make("photos", tmp_path / "photos", Path(sys.executable), widt=3, count=1, seed=-1)

    assert "did you mean 'width'" in str(caught.value)
    assert "count is 1" in str(caught.value)
    assert "seed is -1" in str(caught.value)


def test_an_unknown_dataset_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="did you mean 'digits'"):
        make("digit", tmp_path / "digits", Path(sys.executable))


def test_two_makers_at_once_make_one_dataset(interpreter: Path, cache: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from steptime.datasets.creation import builtin_folder, make\n"
        "make('digits', builtin_folder('digits', Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    makers = [subprocess.Popen([sys.executable, "-c", code, str(cache), str(interpreter)]) for _ in range(2)]

    assert [maker.wait() for maker in makers] == [0, 0]
    assert [path.name for path in (cache / "datasets").iterdir()] == [builtin_folder("digits", cache).name]


@pytest.mark.parametrize(("change", "stays"), [({"started": 1}, False), ({}, True), ({"namespace": 1}, True)])
def test_what_an_ended_maker_left_is_removed_and_that_of_another_container_is_not(
    interpreter: Path, cache: Path, change: dict[str, int], stays: bool
) -> None:
    parent = os.getppid()
    maker = replace(ProcessIdentity.own(), **{"pid": parent, "started": start_ticks(parent) or 0, **change})
    place = builtin_folder("digits", cache)
    left = place.parent / f".{place.name}.partial-{maker}"
    left.mkdir(parents=True)

    make("digits", place, interpreter)

    # A process that began at another moment has got the maker's number since.
    assert left.exists() == stays


@pytest.mark.parametrize("name", names())
def test_the_table_says_what_the_maker_makes(name: str, request: pytest.FixtureRequest) -> None:
    builtin, made = BUILTINS[name], request.getfixturevalue(name)

    assert made.class_names == builtin.classes
    assert made.input_shape == builtin.input_shape
    assert builtin.samples == builtin.parameters.get("count", made.samples)


def _dated(folder: Path, name: str, **parameters: int) -> str:
    """Describe a folder as a dataset of other parameters, with the one file that this version wrote there."""
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "cat-00000.jpg").write_bytes(b"made")
    (folder / "index.json").write_text(json.dumps({"files": [["cat/cat-00000.jpg", 0]]}))
    builtin = BUILTINS[name]
    address = address_of(builtin, chosen_parameters(builtin, parameters))
    write_marker(folder, builtin, address, chosen_parameters(builtin, parameters))
    return address


@pytest.mark.parametrize("added", ["mine.jpg", "cat/mine.jpg", "mine/0.jpg"])
def test_what_a_user_added_to_a_made_folder_is_never_deleted(added: str, tmp_path: Path) -> None:
    _dated(tmp_path / "photos", "photos", count=20)
    mine = tmp_path / "photos" / added
    mine.parent.mkdir(exist_ok=True)
    mine.write_bytes(b"mine")

    with pytest.raises(DatasetError, match=rf"did not make: {added}; nothing was deleted: move that elsewhere"):
        make("photos", tmp_path / "photos", Path(sys.executable), count=40)

    assert mine.read_bytes() == b"mine"


def test_a_link_to_a_users_folder_in_a_made_one_is_never_followed(tmp_path: Path) -> None:
    _dated(tmp_path / "photos", "photos", count=20)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cat-00001.jpg").write_bytes(b"mine")
    (tmp_path / "photos" / "dog").symlink_to(tmp_path / "mine")

    with pytest.raises(DatasetError, match="did not make: dog;"):
        make("photos", tmp_path / "photos", Path(sys.executable), count=40)

    assert (tmp_path / "mine" / "cat-00001.jpg").read_bytes() == b"mine"


def test_what_a_user_added_does_not_make_a_dataset_damaged(tmp_path: Path) -> None:
    address = _dated(tmp_path / "photos", "photos", count=20)
    (tmp_path / "photos" / "cat" / "mine.jpg").write_bytes(b"mine")

    assert made_dataset(tmp_path / "photos", BUILTINS["photos"], address) is not None


def test_a_made_folder_is_replaced_by_one_of_other_parameters(interpreter: Path, tmp_path: Path) -> None:
    make("photos", tmp_path / "photos", interpreter, count=40)
    made = make("photos", tmp_path / "photos", interpreter, count=20)

    assert len(list(made.path.glob("*/*.jpg"))) == made.samples == 20


def test_a_file_that_appears_while_a_dataset_is_made_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mine.jpg").write_bytes(b"mine")

    with pytest.raises(DatasetError, match=r"did not make: mine\.jpg"):
        put_in_place(tmp_path / "new", tmp_path / "old", {"0.jpg"})

    assert (tmp_path / "old" / "mine.jpg").read_bytes() == b"mine"


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_run_that_is_killed_while_it_replaces_a_made_folder_leaves_what_the_next_one_replaces(
    removed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _dated(tmp_path / "photos", "photos", count=20)
    own = {"cat/cat-00000.jpg", "index.json", "dataset.json"}
    (tmp_path / "new").mkdir()
    unlink, left = Path.unlink, list(range(removed))

    def killed_after_some(path: Path) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        unlink(path)

    monkeypatch.setattr(Path, "unlink", killed_after_some)
    with pytest.raises(KeyboardInterrupt):
        put_in_place(tmp_path / "new", tmp_path / "photos", own)

    found = read_marker(tmp_path / "photos")
    assert found is not None
    require_unchanged(tmp_path / "photos", _own_files(tmp_path / "photos", found))


def test_the_text_is_bytes_of_english(text: Dataset) -> None:
    with np.load(text.path) as file:
        tokens = file["tokens"]
    assert (tokens.dtype, tokens.shape) == (np.uint8, (400_000,))
    assert "The statement" in tokens.tobytes().decode()


def test_samples_of_tokens_are_sequences_with_a_token_behind() -> None:
    tokens = Dataset("own", "tokens", Path("own.npz"), None, 41, (), None, 1)
    assert [tokens.samples_of((length,)) for length in (10, 20, 21)] == [4, 2, 1]
