"""Folders of pictures as people have them: splits are not classes, and hints lead to folders that can be used."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_folders import write_folder, write_many

from steptime.datasets.corpus import Reading, scan_corpus
from steptime.datasets.creation import open_dataset
from steptime.errors import DatasetError

SOMEBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a test writes its folder."""
    return tmp_path / "mine"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that somebody else can reach, as those of pytest cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def refusal(root: Path, cache: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        open_dataset(str(root), cache)
    return str(caught.value)


def write_tiny(root: Path, deeper: str = "images") -> Path:
    for name in ("n01", "n02"):
        write_many(root / "train" / name / deeper, [f"{name}_{number}.jpg" for number in range(3)])
        (root / "train" / name / f"{name}_boxes.txt").write_text("x")
    write_many(root / "val" / deeper, ["val_0.jpg", "val_1.jpg"])
    (root / "val" / "val_annotations.txt").write_text("val_0.jpg\tn01\n")
    return root


def write_yolo(root: Path, images: str = "images", labels: str = "labels") -> Path:
    for part in ("train", "val"):
        write_many(root / images / part, ["0.jpg", "1.jpg"])
        (root / labels / part).mkdir(parents=True)
        (root / labels / part / "0.txt").write_text("0 0.5 0.5 0.2 0.2")
    return root


@pytest.mark.parametrize(
    "folders",
    [("train",), ("train", "test"), ("train", "val"), ("Train", "Test"), ("training", "validation"), ("train2017",),
     ("train_images", "test_images"), ("dev", "eval")],
)  # fmt: skip
def test_folders_named_after_splits_are_never_classes(folders: tuple[str, ...], root: Path, cache: Path) -> None:
    write_folder(root, classes=folders)

    assert "of a dataset and not classes" in refusal(root, cache)


@pytest.mark.parametrize("folders", [("images",), ("images", "masks"), ("JPEGImages", "SegmentationClass"), ("data",)])
def test_folders_named_after_what_they_hold_are_never_classes(
    folders: tuple[str, ...], root: Path, cache: Path
) -> None:
    write_folder(root, classes=folders)

    assert "not after classes" in refusal(root, cache)


@pytest.mark.parametrize("name", ["train_labels.csv", "labels.tsv", "train_label_map.json"])
def test_pictures_beside_a_file_of_labels_are_named_with_the_file(name: str, root: Path, cache: Path) -> None:
    write_many(root / "train", ["0.jpg", "1.jpg"])
    (root / name).write_text("0.jpg,cat")

    for place in (root, root / "train"):
        assert f"labels in {name} are not read: make one folder per class" in refusal(place, cache)


@pytest.mark.parametrize(
    ("deeper", "labels"),
    [("train", "labels.csv"), ("train", "truth.json"), ("images", "birds.tsv"), ("images", "image_labels.txt")],
)
def test_two_datasets_beside_each_other_are_not_called_classes(
    deeper: str, labels: str, root: Path, cache: Path
) -> None:
    for name in ("birds", "dogs"):
        write_many(root / name / deeper, ["0.jpg", "1.jpg"])
        (root / name / labels).write_text("0.jpg,cat")

    assert f"labels in {labels} are not read" in refusal(root / "birds", cache)


@pytest.mark.parametrize("names", [("images", "labels"), ("images", "annotations"), ("imgs", "bboxes")])
def test_pictures_with_boxes_are_named_as_such_and_no_hint_leads_into_them(
    names: tuple[str, str], root: Path, cache: Path
) -> None:
    write_yolo(root, *names)

    for place in (root, root / names[0]):
        text = refusal(place, cache)
        assert "are of boxes in pictures" in text
        assert f"name {root}" not in text


def test_splits_with_a_folder_of_pictures_each_are_not_called_classes(root: Path, cache: Path) -> None:
    """As Roboflow exports them."""
    for part in ("train", "valid", "test"):
        write_many(root / part / "images", ["0.jpg", "1.jpg"])
        (root / part / "labels").mkdir()

    for place in (root, root / "train"):
        text = refusal(place, cache)
        assert "are of boxes in pictures" in text
        assert "the class is" not in text


@pytest.mark.parametrize("deeper", ["images", "img", "data"])
def test_classes_with_a_folder_of_pictures_each_are_named_with_a_command_that_mends_them(
    deeper: str, root: Path, cache: Path
) -> None:
    write_tiny(root, deeper)

    for place in (root, root / "train", root / "train" / "n01"):
        command = re.search(r"as by (\(.*\)), and name (.*)$", refusal(place, cache))
        assert command is not None
        assert command[2] == str(root)
    subprocess.run(["sh", "-c", command[1]], check=True)

    contents = open_dataset(str(root), cache).contents
    assert (contents.samples, contents.classes, contents.validation) == (6, 2, 0)
    assert "4 in val, which has no classes" in contents.in_words("mine") or "in val" in contents.in_words("mine")


@pytest.mark.parametrize(
    ("places", "hint"),
    [
        (("Training", "Test"), "Training"),
        (("mine/train", "mine/val"), "mine"),
        (("archive/data/cats-and-dogs",), "archive/data/cats-and-dogs"),
        (("test", "data/train", "data/val"), "data"),
        (("images",), "images"),
    ],
)
def test_a_hint_leads_to_a_folder_that_can_be_used(places: tuple[str, ...], hint: str, root: Path, cache: Path) -> None:
    for place in places:
        write_folder(root / place) if place != "test" else write_many(root / place / "deeper", ["0.jpg"])

    text = refusal(root, cache)

    named = re.search(r"; name (\S+?) instead|deeper; name (\S+)", text)
    assert named is not None
    assert (named[1] or named[2]).rstrip(",;") == str(root / hint)
    assert open_dataset(str(root / hint), cache).classes == 2


@pytest.mark.parametrize("name", ["bird", "train", "val"])
def test_a_folder_whose_mount_is_away_is_named(name: str, root: Path, cache: Path) -> None:
    write_folder(root if name == "bird" else root / ("train" if name == "val" else "validation"))
    (root / name).symlink_to(f"/mnt/away/{name}")

    text = refusal(root, cache)

    assert f"{root / name} (a link to /mnt/away/{name}, where nothing is); mount or restore" in text


def test_text_whose_training_folder_is_a_link_to_nothing_is_named(root: Path, cache: Path) -> None:
    root.mkdir()
    (root / "other.txt").write_text("some text")
    (root / "train").symlink_to("/mnt/away/train")

    with pytest.raises(DatasetError, match="/train \\(a link to /mnt/away/train, where nothing is"):
        scan_corpus(str(root), cache, Reading())


def test_a_file_that_links_to_nothing_is_counted(root: Path, cache: Path) -> None:
    write_folder(root)
    (root / "README.md").symlink_to("/mnt/away/README.md")
    (root / "cat" / "9.jpg").symlink_to("/mnt/away/9.jpg")

    assert open_dataset(str(root), cache).contents.in_words("mine").endswith("left out: 2 dangling links")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
@pytest.mark.parametrize(
    ("modes", "said"),
    [
        ({"cat": 0o000}, "mine/cat: Permission denied; give yourself the permission"),
        ({"cat": 0o444}, "Permission denied; give yourself the permission"),
        ({"cat/more": 0o000}, "left out: 1 unreadable"),
        ({"cat/0.jpg": 0o000}, "cat/0.jpg: [Errno 13] Permission denied"),
        ({"": 0o000}, "mine: Permission denied; give yourself the permission"),
    ],
)
def test_what_somebody_has_no_permission_to_read_is_named_or_counted(
    modes: dict[str, int], said: str, outside: Path
) -> None:
    root = write_folder(outside / "mine")
    (root / "cat" / "more").mkdir()
    script = (
        "import os, sys, pathlib\n"
        "from steptime.datasets.creation import open_dataset\n"
        f"os.setgroups([]); os.setgid({SOMEBODY}); os.setuid({SOMEBODY})\n"
        "try: print(open_dataset(sys.argv[1], pathlib.Path(sys.argv[2])).contents.in_words('mine'))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    cache = outside / "cache"
    cache.mkdir()
    for place in (outside, cache):
        place.chmod(0o777)
    for path, mode in modes.items():
        (root / path).chmod(mode)

    done = subprocess.run([sys.executable, "-c", script, root, cache], capture_output=True, text=True, check=True)

    assert said in done.stdout
    assert not done.stdout.startswith("PermissionError")
