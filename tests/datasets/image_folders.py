"""Folders of small images, whole and broken."""

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
