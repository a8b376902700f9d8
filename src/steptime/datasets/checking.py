"""Finding images that cannot be decoded, before a framework does in the middle of a run."""

import os
import random
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

MOST = 2000
"""Images looked at; of a larger dataset a random choice, since decoding millions would take hours."""


def broken_images(folder: Path, paths: Sequence[str], most: int = MOST) -> tuple[int, list[tuple[str, str]]]:
    """Return how many images were decoded, and which of them are broken, with the reason.

    Args:
        folder: that ``paths`` are relative to.
        paths: of JPEG or PNG files.
        most: how many to decode.
    """
    chosen = list(paths)
    if len(chosen) > most:
        # The same ones every time: an error that comes and goes helps nobody.
        chosen = sorted(random.Random(0).sample(chosen, most))  # noqa: S311 - no secret
    # Pillow decodes outside the interpreter's lock.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        reasons = list(pool.map(lambda path: _why_broken(folder / path), chosen))
    return len(chosen), [(path, why) for path, why in zip(chosen, reasons, strict=True) if why]


def _why_broken(path: Path) -> str | None:
    """Return what is wrong with an image; None if it decodes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                image.verify()
            # Verifying uses the file up; only decoding finds what was cut off.
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                image.load()
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken byte leads to
        if "cannot identify" in str(error):
            return "not a JPEG or PNG image" if path.stat().st_size else "empty file"
        return str(error) or type(error).__name__
    return None
