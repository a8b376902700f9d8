"""Bad images among a user's: each is named with its reason, nothing is lost, and nothing is skipped unasked."""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from image_folders import cut_off, write_folder, write_image
from PIL import Image

from steptime.datasets import image_folder
from steptime.datasets.creation import open_dataset
from steptime.datasets.picture_files import broken_images
from steptime.errors import DatasetError

NOBODY = 65534


def deep(path: Path, shape: tuple[int, ...]) -> Path:
    """Write a PNG file of 16 bits per value: grey by Pillow, colour by hand, since Pillow cannot write it."""
    values = np.random.default_rng(0).integers(0, 65536, shape, dtype=np.uint16)
    if len(shape) == 2:
        Image.fromarray(values).save(path)
        return path

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack("!IIBBBBB", shape[1], shape[0], 16, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    return path


def test_a_cmyk_picture_is_named(folder: Path, cache: Path) -> None:
    write_image(folder / "cat" / "press.jpg", mode="CMYK")

    with pytest.raises(DatasetError, match=r"press\.jpg: CMYK colours, .* convert it to RGB"):
        open_dataset(str(folder), cache)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)], ids=["grey", "colour"])
def test_a_picture_of_16_bits_is_named(shape: tuple[int, ...], folder: Path, cache: Path) -> None:
    deep(folder / "cat" / "deep.png", shape)

    with pytest.raises(DatasetError, match=r"deep\.png: 16 bits per value, .* convert it to 8 bits"):
        open_dataset(str(folder), cache)


def spoil(folder: Path) -> None:
    """Put one bad picture of every kind into a folder, next to its six good ones."""
    cut_off(write_image(folder / "cat" / "truncated.jpg"))
    (folder / "cat" / "text.jpg").write_text("no image at all")
    write_image(folder / "dog" / "press.jpg", mode="CMYK")
    deep(folder / "dog" / "deep.png", (20, 30))


def test_every_bad_picture_is_named_at_once(folder: Path, cache: Path) -> None:
    spoil(folder)

    with pytest.raises(DatasetError, match="4 broken images among 10") as caught:
        open_dataset(str(folder), cache)

    assert all(f"{name}: " in str(caught.value) for name in ("truncated.jpg", "text.jpg", "press.jpg", "deep.png"))


def test_the_header_of_every_picture_is_read_where_not_all_are_decoded(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(folder)
    monkeypatch.setattr(image_folder, "MOST", 1)

    with pytest.raises(DatasetError, match="broken images among 10 images, of which 1 were decoded") as caught:
        open_dataset(str(folder), cache)

    assert all(f"{name}: " in str(caught.value) for name in ("text.jpg", "press.jpg", "deep.png"))


def test_a_picture_that_is_written_over_is_looked_at_again(folder: Path, cache: Path) -> None:
    open_dataset(str(folder), cache)
    write_image(folder / "cat" / "1.jpg", mode="CMYK")

    with pytest.raises(DatasetError, match=r"1\.jpg: CMYK colours"):
        open_dataset(str(folder), cache)


def test_bad_pictures_are_left_out_and_named_if_that_is_asked_for(folder: Path, cache: Path) -> None:
    spoil(folder)

    dataset = open_dataset(str(folder), cache, skip_broken=True)

    assert dataset.samples == 6
    assert sorted(Path(line.split(": ")[0]).name for line in dataset.skipped) == [
        "deep.png",
        "press.jpg",
        "text.jpg",
        "truncated.jpg",
    ]


def test_the_index_of_whole_images_has_no_bad_picture(folder: Path, cache: Path) -> None:
    spoil(folder)

    index = open_dataset(str(folder), cache, skip_broken=True).index

    assert index is not None
    names = [name for name, _ in json.loads(index.read_text())["files"]]
    assert names == [f"{name}/{number}.jpg" for name in ("cat", "dog") for number in range(3)]


def test_bad_pictures_are_an_error_again_after_they_were_left_out(folder: Path, cache: Path) -> None:
    spoil(folder)
    open_dataset(str(folder), cache, skip_broken=True)

    with pytest.raises(DatasetError, match="4 broken images"):
        open_dataset(str(folder), cache)


def test_left_out_pictures_are_named_the_second_time_too(folder: Path, cache: Path) -> None:
    spoil(folder)
    first = open_dataset(str(folder), cache, skip_broken=True)

    assert open_dataset(str(folder), cache, skip_broken=True) == first


def test_a_class_of_bad_pictures_only_is_an_error_even_where_they_are_left_out(folder: Path, cache: Path) -> None:
    for number in range(3):
        cut_off(folder / "dog" / f"{number}.jpg")

    with pytest.raises(DatasetError, match="no readable image of dog"):
        open_dataset(str(folder), cache, skip_broken=True)


def test_no_file_of_the_user_is_touched(folder: Path, cache: Path) -> None:
    spoil(folder)
    before = {path: path.read_bytes() for path in folder.glob("*/*")}

    open_dataset(str(folder), cache, skip_broken=True)

    assert {path: path.read_bytes() for path in folder.glob("*/*")} == before


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder of images that is open to all, read by a user who is not root."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    root = write_folder(base / "mine")
    (base / "cache").mkdir()
    (base / "cache").chmod(0o777)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield root
    if user == 0:
        os.seteuid(0)
    shutil.rmtree(base)


def _close(path: Path) -> None:
    user = os.geteuid()
    if user == NOBODY:
        os.seteuid(0)
    path.chmod(0)
    if user == NOBODY:
        os.seteuid(NOBODY)


def _open(path: Path) -> None:
    if os.geteuid() == NOBODY:
        os.seteuid(0)
    path.chmod(0o755)


@pytest.mark.parametrize("closed", [".", "cat"])
def test_a_folder_without_permission_to_read_is_named(closed: str, as_nobody: Path) -> None:
    _close(as_nobody / closed)

    try:
        with pytest.raises(DatasetError, match=r"cannot be read: .*: Permission denied; give yourself the permission"):
            open_dataset(str(as_nobody), as_nobody.parent / "cache")
    finally:
        _open(as_nobody / closed)


def test_a_picture_without_permission_to_read_is_named(as_nobody: Path) -> None:
    _close(as_nobody / "cat" / "1.jpg")

    with pytest.raises(DatasetError, match=r"1\.jpg: .*Permission denied"):
        open_dataset(str(as_nobody), as_nobody.parent / "cache")


def test_a_cache_on_a_full_disk_is_named_and_leaves_no_half_index(folder: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=20", "none", full], check=False).returncode:
        pytest.skip("only root mounts a small file system")
    try:
        (full / "filling").write_bytes(b"x" * 4096)
        with pytest.raises(DatasetError, match="No space left on device; set STEPTIME_CACHE elsewhere"):
            open_dataset(str(folder), full)
        assert [path for path in full.rglob("*") if path.is_file()] == [full / "filling"]
    finally:
        subprocess.run(["umount", full], check=True)


def test_what_the_loaders_convert_alike_is_not_broken(folder: Path) -> None:
    for mode in ("L", "RGBA", "P", "LA"):
        write_image(folder / "cat" / f"{mode}.png", mode=mode)

    assert broken_images(folder, [f"cat/{mode}.png" for mode in ("L", "RGBA", "P", "LA")]) == (4, [])
