"""What of a user's folder is not used: counted by reason, and never left out silently."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_folders import (
    cut_off,
    write_deeper,
    write_flat_validation,
    write_folder,
    write_image,
    write_links,
    write_litter,
    write_many,
    write_other_formats,
)
from PIL import Image

from steptime.datasets.creation import open_dataset
from steptime.datasets.dataset import Contents, LeftOut
from steptime.errors import DatasetError

ADVICE = "(frameworks decode these differently, or not at all: save them as jpg or png)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a test writes its folder."""
    return tmp_path / "mine"


def said(root: Path, cache: Path, *, skip_broken: bool = False) -> str:
    return open_dataset(str(root), cache, skip_broken=skip_broken).contents.in_words("mine")


def write_extra_test(root: Path) -> Path:
    write_folder(root / "train")
    write_folder(root / "val", each=2)
    write_many(root / "test", ["0.jpg", "1.jpg"])
    return root


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (write_folder, "mine: 6 images of 2 classes"),
        (
            write_other_formats,
            f"mine: 6 images of 2 classes; left out: 8 webp, 2 bmp, 2 gif, 2 jfif, 2 tif, 2 tiff {ADVICE}",
        ),
        (write_deeper, "mine: 6 images of 2 classes; left out: 8 in deeper folders"),
        (write_links, "mine: 6 images of 2 classes; left out: 10 dangling links"),
        (write_flat_validation, "mine: 6 images of 2 classes; left out: 4 in val, which has no classes"),
        (
            write_extra_test,
            "mine: 6 images of 2 classes, 4 for validation; left out: 2 in test, which has no classes",
        ),
        (
            write_litter,
            (
                "mine: 6 images of 2 classes; passed over: 2 @eaDir, 1 $RECYCLE.BIN, 1 .DS_Store, 1 ._*, "
                "1 .ipynb_checkpoints, 1 System Volume Information, 1 Thumbs.db, 1 __MACOSX, 1 desktop.ini, 1 hidden, "
                "1 lost+found"
            ),
        ),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_used_and_what_is_not_is_one_sentence(
    write: Callable[[Path], Path], sentence: str, root: Path, cache: Path
) -> None:
    assert said(write(root), cache) == sentence


def test_every_other_file_of_a_class_is_counted(folder: Path, cache: Path) -> None:
    for name in ("notes.txt", "labels.CSV", "LICENSE", "odd.\x1b[31mred"):
        (folder / "cat" / name).touch()

    assert said(folder, cache).endswith("; left out: 1 without an ending, 1 csv, 1 of an odd ending, 1 txt")


def test_images_beside_the_classes_are_counted(folder: Path, cache: Path) -> None:
    write_many(folder, ["loose.jpg", "loose.webp"])

    assert said(folder, cache).endswith(f"; left out: 1 webp {ADVICE}, 1 outside of any class")


def test_links_within_a_class_are_not_followed_and_counted(folder: Path, cache: Path) -> None:
    (folder / "cat" / "all").symlink_to(folder)
    (folder / "cat" / "zero.jpg").symlink_to("/dev/zero")
    os.mkfifo(folder / "cat" / "pipe.jpg")

    assert said(folder, cache).endswith("; left out: 1 link to folders within a class, 2 pipes or devices")


def test_a_link_to_itself_in_a_deeper_folder_is_unreadable(folder: Path, cache: Path) -> None:
    (folder / "cat" / "deeper").mkdir()
    (folder / "cat" / "deeper" / "x.jpg").symlink_to("x.jpg")

    assert said(folder, cache).endswith("; left out: 1 unreadable")


def test_a_class_that_is_a_link_is_a_class(folder: Path, tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "elsewhere", classes=("bird",))
    (folder / "bird").symlink_to(tmp_path / "elsewhere" / "bird")

    assert said(folder, cache) == "mine: 9 images of 3 classes"


def test_broken_images_and_empty_classes_that_are_left_out_are_counted(folder: Path, cache: Path) -> None:
    cut_off(folder / "cat" / "0.jpg")
    (folder / "empty").mkdir()

    first = said(folder, cache, skip_broken=True)

    assert first.endswith("5 images of 2 classes; left out: 1 unreadable, 1 empty class folder")
    assert said(folder, cache, skip_broken=True) == first


@pytest.mark.parametrize("skip_broken", [False, True])
def test_a_class_of_another_format_is_named_and_never_dropped(skip_broken: bool, folder: Path, cache: Path) -> None:
    write_many(folder / "bird", ["0.webp", "1.webp"])

    with pytest.raises(DatasetError, match=rf"{folder}/bird \(2 webp\); every folder is a class: put jpg or png"):
        open_dataset(str(folder), cache, skip_broken=skip_broken)


@pytest.mark.parametrize("skip_broken", [False, True])
def test_a_folder_of_classes_among_classes_is_named_and_never_dropped(
    skip_broken: bool, root: Path, cache: Path
) -> None:
    write_folder(root / "train")
    write_folder(root, classes=("bird",))

    with pytest.raises(DatasetError, match=rf"{root}/train \(6 in deeper folders\)"):
        open_dataset(str(root), cache, skip_broken=skip_broken)


@pytest.mark.parametrize("skip_broken", [False, True])
@pytest.mark.parametrize("name", ["validation", "val", "valid", "test"])
def test_train_is_trained_on_beside_a_flat_folder(name: str, skip_broken: bool, root: Path, cache: Path) -> None:
    dataset = open_dataset(str(write_flat_validation(root, name)), cache, skip_broken=skip_broken)

    assert (dataset.class_names, dataset.samples, dataset.validation) == (("cat", "dog"), 6, None)
    assert dataset.left_out == (LeftOut("no_classes", name, 4),)


def test_an_image_beside_the_classes_of_validation_does_not_hide_them(root: Path, cache: Path) -> None:
    write_folder(root / "train")
    write_image(write_folder(root / "val", each=2) / "contact-sheet.jpg")

    sentence = said(root, cache)

    assert sentence == "mine: 6 images of 2 classes, 4 for validation; left out: 1 outside of any class"


def test_folders_beside_train_and_validation_are_counted(root: Path, cache: Path) -> None:
    for name in ("train", "val", "test", "extra"):
        write_folder(root / name, each=1)

    sentence = said(root, cache)

    assert sentence.endswith(
        "2 images of 2 classes, 2 for validation; left out: 2 in other folders, not used, 2 in test, not used"
    )


def test_litter_is_never_a_class(root: Path, cache: Path) -> None:
    assert open_dataset(str(write_litter(root)), cache).class_names == ("cat", "dog")


@pytest.mark.parametrize("name", ["lost+found", "@eaDir", "__MACOSX", "$RECYCLE.BIN", "System Volume Information"])
def test_litter_is_no_class_of_training_or_validation(name: str, root: Path, cache: Path) -> None:
    for part in ("train", "val"):
        write_image(write_folder(root / part) / name / "0.jpg")

    dataset = open_dataset(str(root), cache)

    assert (dataset.classes, dataset.left_out) == (2, (LeftOut("litter", name, 2),))


@pytest.mark.parametrize(("ending", "name"), [("webp", "WEBP"), ("gif", "GIF"), ("bmp", "BMP"), ("tif", "TIFF")])
def test_an_image_of_another_format_under_a_read_ending_is_named(
    ending: str, name: str, folder: Path, cache: Path
) -> None:
    write_image(folder / "cat" / f"x.{ending}").rename(folder / "cat" / "x.jpg")

    with pytest.raises(DatasetError, match=rf"x\.jpg: not a JPEG or PNG image but {name}, .*; save it as JPEG or PNG"):
        open_dataset(str(folder), cache)


def test_a_folder_of_other_formats_only_says_what_was_found(root: Path, cache: Path) -> None:
    write_many(root / "cat", ["0.webp", "1.webp"])

    with pytest.raises(DatasetError, match=r"no images in its 1 folders, but 2 webp; expected .*CLASS/\*\.jpg"):
        open_dataset(str(root), cache)


def test_large_counts_are_readable_and_single_ones_too() -> None:
    left_out = (LeftOut("format", "webp", 14), LeftOut("deeper_folder", "", 3), LeftOut("dangling_link", "", 1))

    sentence = Contents(1200, 10, 0, left_out).in_words("photos")

    assert sentence == (
        f"photos: 1,200 images of 10 classes; left out: 14 webp {ADVICE}, 3 in deeper folders, 1 dangling link"
    )


def test_many_endings_are_added_up(folder: Path, cache: Path) -> None:
    for number in range(9):
        (folder / "cat" / f"part.r{number}").touch()

    assert said(folder, cache).endswith("; left out: 1 r0, 1 r1, 1 r2, 1 r3, 5 of other endings")


FILES = ["a.jpg", "b.PNG", "c.webp", "notes.txt", "README", "._a.jpg", ".hidden", "Thumbs.db", "link.jpg"]
FOLDERS = ["cat", "dog", "train", "val", "test", "deeper", "@eaDir", "lost+found", ".git"]
PIXELS = io.BytesIO()
Image.new("RGB", (8, 8)).save(PIXELS, "JPEG")


def leaves(root: Path) -> int:
    """Count files and links below a folder; litter counts once, with all that is in it."""
    litter = {"._a.jpg", ".hidden", "Thumbs.db", "@eaDir", "lost+found", ".git"}
    found = 0
    for entry in root.iterdir():
        is_folder = entry.is_dir() and entry.name not in litter
        found += leaves(entry) if is_folder else 1
    return found


@settings(max_examples=60)
@given(trees=st.lists(st.tuples(st.lists(st.sampled_from(FOLDERS), max_size=4), st.sampled_from(FILES)), max_size=25))
def test_every_file_of_a_folder_is_used_or_counted(
    trees: list[tuple[list[str], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("any")
    for folders, name in [(["cat"], "a.jpg"), *trees]:
        place = root.joinpath("mine", *folders)
        place.mkdir(parents=True, exist_ok=True)
        if name == "link.jpg":
            (place / name).unlink(missing_ok=True)
            (place / name).symlink_to("/nowhere")
        else:
            (place / name).write_bytes(PIXELS.getvalue())

    try:
        contents = open_dataset(str(root / "mine"), root / "cache").contents
    except DatasetError as error:
        assert str(root / "mine") in str(error)  # noqa: PT017 - either is right
        return
    counted = contents.samples + contents.validation + sum(each.count for each in contents.left_out)
    assert counted == leaves(root / "mine")


def test_loose_images_in_train_do_not_make_it_a_class(root: Path, cache: Path) -> None:
    """With a folder for validation, ``train`` and ``val`` were two classes; without one, ``train`` was the only one."""
    write_folder(root / "train")
    write_many(root / "train", ["0.jpg", "1.jpg"])
    with pytest.raises(DatasetError, match="has 2 images in train beside folders of images; move them into a class"):
        said(root, cache)
    write_folder(root / "val", each=2)
    assert said(root, cache) == "mine: 6 images of 2 classes, 4 for validation; left out: 2 outside of any class"
