"""Make a folder of JPEG photographs, cut from the pictures that ship in scikit-image and scikit-learn.

A class is a picture: its samples are square pieces of different size from different places, brought to one size.
"""

import io
import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

PICTURES = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "brick": ("skimage", "data/brick.png"),
    "camera": ("skimage", "data/camera.png"),
    "cat": ("skimage", "data/chelsea.png"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "clock": ("skimage", "data/clock_motion.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "coins": ("skimage", "data/coins.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "galaxies": ("skimage", "data/hubble_deep_field.jpg"),
    "grass": ("skimage", "data/grass.png"),
    "gravel": ("skimage", "data/gravel.png"),
    "moon": ("skimage", "data/moon.png"),
    "page": ("skimage", "data/page.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "text": ("skimage", "data/text.png"),
    "tissue": ("skimage", "data/ihc.png"),
}
"""Class to package and file; all free to use (datasets/builtins.py)."""
_QUALITY = 90
_TOLD = 20
"""Photographs from one line of progress to the next."""


def open_picture(package: str, file: str) -> Image.Image:
    """Return a picture that ships in an installed package, as RGB, without importing the package."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"{package} is not installed in this environment")
    with Image.open(Path(found.submodule_search_locations[0], file)) as picture:
        return picture.convert("RGB")


def cut(picture: Image.Image, width: int, height: int, stream: np.random.RandomState) -> Image.Image:
    """Return a random piece of ``picture`` of the shape wanted, as wide as wanted at least where the picture is."""
    widest = min(picture.width, picture.height * width / height)
    narrowest = min(width, widest)
    side = math.exp(stream.uniform(math.log(narrowest), math.log(widest)))
    sides = side, side * height / width
    left, top = (stream.uniform(0, max(0.0, length - own)) for length, own in zip(picture.size, sides, strict=True))
    box = (left, top, min(picture.width, left + sides[0]), min(picture.height, top + sides[1]))
    return picture.resize((width, height), Image.Resampling.BICUBIC, box=box)


def main(folder: str, count: int, width: int, height: int, seed: int) -> None:
    """Write ``count`` photographs of ``width`` x ``height`` into ``folder/class/``, and ``index.json``."""
    files = []
    for label, (name, (package, file)) in enumerate(PICTURES.items()):
        picture = open_picture(package, file)
        Path(folder, name).mkdir()
        # The first classes take one more where the count cannot be shared evenly.
        share = len(range(label, count, len(PICTURES)))
        for number in range(share):
            stream = np.random.RandomState([seed, label, number])
            path = f"{name}/{name}-{number:05d}.jpg"
            content = io.BytesIO()
            cut(picture, width, height, stream).save(content, "JPEG", quality=_QUALITY)
            Path(folder, path).write_bytes(content.getvalue())
            files.append([path, label])
            if len(files) % _TOLD == 0:
                sys.stdout.write(f"progress {len(files)} {count}\n")
                sys.stdout.flush()
    index = {"files": files, "classes": list(PICTURES), "sizes": [[width, height]] * len(files)}
    Path(folder, "index.json").write_text(json.dumps(index), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(**json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.filename or 'the folder'}: {error.strerror or error}")
