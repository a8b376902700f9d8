"""Folders of small images, whole and broken."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, seed: int = 0, mode: str = "RGB") -> Path:
    """Write an image of noise, whose bytes cannot be squeezed away, in the format of the path's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path)
    return path


def write_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog"), each: int = 3) -> Path:
    """Write a folder of images with one folder per class."""
    for name in classes:
        for number in range(each):
            write_image(root / name / f"{number}.jpg", number)
    return root


def cut_off(path: Path) -> Path:
    """Truncate a file in the middle."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def write_many(folder: Path, names: Iterable[str]) -> None:
    """Write small images of noise, each in the format of its ending."""
    for number, name in enumerate(names):
        write_image(folder / name, number)


def write_other_formats(root: Path) -> Path:
    """Write two classes that are mostly WebP, with one image of each other format."""
    write_folder(root)
    for name in ("cat", "dog"):
        write_many(root / name, [*(f"w{number}.webp" for number in range(4)), "b.bmp", "t.tif", "t.TIFF", "g.gif"])
        write_image(root / name / "x.jpg").rename(root / name / "x.jfif")
    return root


def write_deeper(root: Path) -> Path:
    """Write two classes, most of whose images lie in a folder of theirs."""
    for name in ("cat", "dog"):
        write_folder(root / name, classes=("batch2", "batch3/of/may"), each=2)
    return write_folder(root)


def write_links(root: Path) -> Path:
    """Write two classes with links to a disk that is not mounted."""
    write_folder(root)
    for name in ("cat", "dog"):
        for number in range(5):
            (root / name / f"l{number}.jpg").symlink_to(f"/mnt/unmounted/{name}/{number}.jpg")
    return root


def write_flat_validation(root: Path, name: str = "val") -> Path:
    """Write classes to train on and, beside them, images without classes, as ImageNet is downloaded."""
    write_folder(root / "train")
    write_many(root / name, [f"ILSVRC2012_val_{number:08}.JPEG" for number in range(4)])
    return root


def write_litter(root: Path) -> Path:
    """Write two classes among what file systems, desktops, NAS devices and notebooks leave."""
    write_folder(root)
    for name in ("lost+found", "$RECYCLE.BIN", "System Volume Information", "__MACOSX/cat"):
        (root / name).mkdir(parents=True)
    (root / "__MACOSX" / "cat" / "._0.jpg").write_bytes(b"\0\5\x16\7")
    write_image(root / "@eaDir" / "cat" / "SYNOPHOTO_THUMB_M.jpg")
    write_image(root / "cat" / "@eaDir" / "0.jpg" / "SYNOPHOTO_THUMB_M.jpg")
    write_image(root / "cat" / ".ipynb_checkpoints" / "0-checkpoint.jpg")
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "._0.jpg", ".nfs000123"):
        (root / "cat" / name).write_bytes(b"x")
    return root
