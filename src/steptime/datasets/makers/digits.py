"""Make ``digits.npz``: the 1797 handwritten digits that ship in scikit-learn, brought to the shape of MNIST.

The originals are 8x8 with 17 grey levels. As in MNIST, the digit fills 20x20 of 28x28 pixels.
"""

import gzip
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

_ORIGINAL, _SCALED, _FRAMED = 8, 20, 28
_LEVELS = 16.0


def read_originals() -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of the 8x8 images (samples, 8, 8) and their labels, without importing scikit-learn."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        sys.exit("scikit-learn is not installed in this environment")
    path = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    images = np.round(table[:, :-1] * (255.0 / _LEVELS)).astype(np.uint8)
    return images.reshape(-1, _ORIGINAL, _ORIGINAL), table[:, -1].astype(np.int64)


def frame(original: np.ndarray) -> np.ndarray:
    """Return an 8x8 image enlarged to 20x20 in the middle of 28x28."""
    scaled = Image.fromarray(original).resize((_SCALED, _SCALED), Image.Resampling.BICUBIC)
    margin = (_FRAMED - _SCALED) // 2
    return np.pad(np.asarray(scaled), margin)


def main(folder: str) -> None:
    """Write ``digits.npz`` into ``folder``: images uint8 (samples, 1, 28, 28), labels int64."""
    originals, labels = read_originals()
    images = np.stack([frame(original) for original in originals])[:, np.newaxis]
    np.savez_compressed(Path(folder, "digits.npz"), images=images, labels=labels)


if __name__ == "__main__":
    try:
        main(**json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.filename or 'the folder'}: {error.strerror or error}")
