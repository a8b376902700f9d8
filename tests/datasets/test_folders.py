"""A user's own folder of images: looked through before a framework fails on it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from image_folders import cut_off, write_folder, write_image
from PIL import Image

from steptime.datasets.creation import open_dataset
from steptime.datasets.picture_files import broken_images, header, threads
from steptime.errors import DatasetError


def test_the_folders_are_the_classes(folder: Path, cache: Path) -> None:
    dataset = open_dataset(str(folder), cache)

    assert (dataset.class_names, dataset.samples, dataset.form) == (("cat", "dog"), 6, "image_folder")
    assert dataset.bytes == sum(path.stat().st_size for path in folder.glob("*/*"))


def test_the_index_lists_every_image_with_its_class(folder: Path, cache: Path) -> None:
    index = open_dataset(str(folder), cache).index

    assert index is not None
    files = [[f"{name}/{number}.jpg", label] for label, name in enumerate(("cat", "dog")) for number in range(3)]
    assert json.loads(index.read_text()) == {
        "files": files,
        "classes": ["cat", "dog"],
        "sizes": [[128, 96]] * 6,
        "skipped": [],
    }


def test_nothing_is_written_into_the_users_folder(folder: Path, cache: Path) -> None:
    before = sorted(folder.rglob("*"))

    open_dataset(str(folder), cache)

    assert sorted(folder.rglob("*")) == before


def test_png_and_capital_endings_count_and_other_files_do_not(folder: Path, cache: Path) -> None:
    write_image(folder / "cat" / "a.png")
    write_image(folder / "cat" / "b.JPEG")
    (folder / "cat" / "notes.txt").touch()
    (folder / "cat" / ".hidden.jpg").touch()

    assert open_dataset(str(folder), cache).samples == 8


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_images_of_other_modes_are_readable(mode: str, folder: Path, cache: Path) -> None:
    write_image(folder / "cat" / "other.png", mode=mode)

    assert open_dataset(str(folder), cache).samples == 7


def test_a_class_folder_without_images_is_named_with_the_remedies(folder: Path, cache: Path) -> None:
    (folder / "empty").mkdir()

    with pytest.raises(DatasetError, match=r"folders without images: .*/empty; .* remove it, or set skip_broken"):
        open_dataset(str(folder), cache)


def test_a_class_folder_without_images_is_left_out_if_that_is_asked_for(folder: Path, cache: Path) -> None:
    (folder / "empty").mkdir()

    dataset = open_dataset(str(folder), cache, skip_broken=True)

    assert dataset.class_names == ("cat", "dog")
    assert dataset.skipped == (f"{folder}/empty: no images",)


@pytest.mark.parametrize(
    "name", ["two words", "it's", 'a "b"', "new\nline", "größe-写真", "100%", "#1", "-rf", "$HOME"]
)
def test_awkward_names_are_only_names(name: str, tmp_path: Path, cache: Path) -> None:
    root = write_folder(tmp_path / name, classes=(name, "other"), each=1)

    dataset = open_dataset(str(root), cache)

    assert dataset.index is not None
    listed = [path for path, _ in json.loads(dataset.index.read_text())["files"]]
    assert sorted(listed) == sorted([f"{name}/0.jpg", "other/0.jpg"])
    assert all((dataset.path / path).exists() for path in listed)


def test_names_that_are_not_text_are_refused(folder: Path, cache: Path) -> None:
    (folder / "cat" / "0.jpg").rename(folder / "cat" / os.fsdecode(b"\xff.jpg"))

    with pytest.raises(DatasetError, match="not UTF-8"):
        open_dataset(str(folder), cache)


def test_broken_images_are_listed_with_what_is_wrong_and_the_remedy(folder: Path, cache: Path) -> None:
    cut_off(folder / "cat" / "0.jpg")
    (folder / "cat" / "1.jpg").write_text("no image at all")
    (folder / "dog" / "2.jpg").write_bytes(b"")

    with pytest.raises(DatasetError) as caught:
        open_dataset(str(folder), cache)

    message = str(caught.value)
    assert "3 broken images among 6" in message
    assert f"{folder}/cat/0.jpg: image file is truncated" in message
    assert f"{folder}/cat/1.jpg: not a JPEG or PNG image" in message
    assert f"{folder}/dog/2.jpg: empty file" in message
    assert "Replace or delete them" in message


def test_a_png_with_a_flipped_byte_is_broken(folder: Path, cache: Path) -> None:
    path = write_image(folder / "cat" / "a.png")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)

    with pytest.raises(DatasetError, match="1 broken"):
        open_dataset(str(folder), cache)


@pytest.mark.parametrize(
    "put",
    [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("nowhere"), Path.mkdir],
    ids=["pipe", "endless device", "link to nothing", "folder"],
)
def test_what_is_called_an_image_and_is_no_file_is_left_out(
    put: Callable[[Path], None], folder: Path, cache: Path
) -> None:
    put(folder / "cat" / "x.jpg")

    assert open_dataset(str(folder), cache).samples == 6


def test_a_file_of_a_terabyte_that_is_no_image_is_broken(folder: Path, cache: Path) -> None:
    (folder / "cat" / "x.jpg").touch()
    os.truncate(folder / "cat" / "x.jpg", 1 << 40)

    with pytest.raises(DatasetError, match=r"x\.jpg: not a JPEG or PNG image"):
        open_dataset(str(folder), cache)


def test_a_link_to_itself_is_named(folder: Path, cache: Path) -> None:
    (folder / "cat" / "x.jpg").symlink_to("x.jpg")

    with pytest.raises(DatasetError, match=r"x\.jpg: Too many levels of symbolic links"):
        open_dataset(str(folder), cache)


def test_at_most_ten_broken_images_are_listed(folder: Path, cache: Path) -> None:
    for number in range(15):
        (folder / "dog" / f"broken-{number}.jpg").touch()

    with pytest.raises(DatasetError) as caught:
        open_dataset(str(folder), cache)

    assert str(caught.value).count("empty file") == 10
    assert "and 5 more" in str(caught.value)


def test_a_broken_image_that_is_added_later_is_found(folder: Path, cache: Path) -> None:
    open_dataset(str(folder), cache)
    (folder / "cat" / "late.jpg").touch()

    with pytest.raises(DatasetError, match="1 broken"):
        open_dataset(str(folder), cache)


def test_after_the_remedy_the_folder_opens(folder: Path, cache: Path) -> None:
    broken = cut_off(folder / "cat" / "0.jpg")
    with pytest.raises(DatasetError):
        open_dataset(str(folder), cache)
    broken.unlink()

    assert open_dataset(str(folder), cache).samples == 5


def test_of_many_images_only_some_are_decoded(folder: Path) -> None:
    paths = [f"{path.parent.name}/{path.name}" for path in sorted(folder.glob("*/*"))]

    assert broken_images(folder, paths, most=4) == (4, [])


def test_a_missing_folder_is_named_with_the_nearest_built_in_dataset(cache: Path) -> None:
    with pytest.raises(DatasetError, match=r"unknown dataset 'photo'; did you mean 'photos'\?"):
        open_dataset("photo", cache)


def test_a_missing_path_says_how_far_it_exists(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DatasetError, match=f"its path exists up to {tmp_path}"):
        open_dataset(str(tmp_path / "no" / "such"), cache)


def test_an_empty_folder_is_named(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DatasetError, match="is empty; expected"):
        open_dataset(str(tmp_path), cache)


def test_images_outside_of_classes_are_named(tmp_path: Path, cache: Path) -> None:
    write_image(tmp_path / "loose.jpg")

    with pytest.raises(DatasetError, match="1 images outside of any class"):
        open_dataset(str(tmp_path), cache)


def test_classes_one_folder_deeper_are_pointed_to(tmp_path: Path, cache: Path) -> None:
    write_folder(tmp_path / "imagenet" / "train")

    with pytest.raises(DatasetError, match=f"name {tmp_path}/imagenet/train instead"):
        open_dataset(str(tmp_path / "imagenet"), cache)


def test_a_file_is_no_dataset(folder: Path, cache: Path) -> None:
    with pytest.raises(DatasetError, match="is a file"):
        open_dataset(str(folder / "cat" / "0.jpg"), cache)


def test_a_cache_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()

    with pytest.raises(DatasetError, match=r"cannot be written .* STEPTIME_CACHE"):
        open_dataset(str(folder), blocked)


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(folder: Path, cache: Path) -> None:
    Image.new("1", (13312, 13312)).save(folder / "cat" / "huge.png")
    with pytest.raises(DatasetError, match=r"huge\.png: 13312 x 13312 pixels; images may have 50 million"):
        open_dataset(str(folder), cache)


def test_threads_that_look_at_pictures_take_no_warning_of_each_others_for_a_reason(folder: Path) -> None:
    Image.new("1", (13312, 13312)).save(folder / "cat" / "huge.png")
    with threads() as pool:
        reasons = {reason for _, reason in pool.map(header, [folder / "cat" / "huge.png"] * 2000)}
    assert reasons == {"13312 x 13312 pixels; images may have 50 million"}
