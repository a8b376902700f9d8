"""Small datasets on disk for the loaders of frameworks: images in one array, and JPEG files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SAMPLES = 12
SIDE = 32
PHOTO: dict[str, Any] = {"input_shape": (3, SIDE, SIDE), "classes": 10}
"""The fields of a job whose workload takes ``photos``."""


def digits(folder: Path, shape: tuple[int, int, int] = (1, 28, 28)) -> dict[str, Any]:
    """A native loader over random images that lie in memory."""
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, *shape), dtype=np.uint8)
    np.savez(folder / "digits.npz", images=images, labels=np.arange(SAMPLES) % 10)
    transform = {"mean": [0.5], "std": [0.25]}
    dataset = {"form": "arrays", "path": str(folder / "digits.npz"), "samples": SAMPLES, "transform": transform}
    return {"kind": "native", "processes": 0, "dataset": dataset}


def without_resizing(height: int, width: int) -> dict[str, Any]:
    """The fields of a transform that cuts squares of ``SIDE`` out of images of this size."""
    share = SIDE * SIDE / (height * width)
    return {"area": [share, share], "aspect": [1.0, 1.0]}


def photos(folder: Path, *, processes: int, pixels: Any = None, **transform: Any) -> dict[str, Any]:
    """A native loader over JPEG files: of smooth random pictures, or all of ``pixels``."""
    stream = np.random.default_rng(0)
    for index in range(SAMPLES):
        coarse = Image.fromarray(stream.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        # Large enough to be decoded at half their size.
        own = coarse.resize((4 * SIDE, 3 * SIDE), Image.Resampling.BICUBIC) if pixels is None else None
        (own or Image.fromarray(pixels)).save(folder / f"{index}.jpg", quality=95)
    files = [[f"{index}.jpg", index % 10] for index in range(SAMPLES)]
    sizes = [[4 * SIDE, 3 * SIDE] if pixels is None else [pixels.shape[1], pixels.shape[0]]] * SAMPLES
    (folder / "index.json").write_text(json.dumps({"files": files, "classes": list("abcdefghij"), "sizes": sizes}))
    dataset = {
        "form": "image_folder",
        "root": str(folder),
        "index": str(folder / "index.json"),
        "samples": SAMPLES,
        "transform": {
            "size": [SIDE, SIDE],
            "area": [0.08, 1.0],
            "aspect": [0.75, 4 / 3],
            "flip": True,
            "mean": [0.5] * 3,
            "std": [0.25] * 3,
            **transform,
        },
    }
    return {"kind": "native", "processes": processes, "dataset": dataset}
