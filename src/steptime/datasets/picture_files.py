"""Picture files: which ones every framework decodes alike, and samples of an array written as such.

Frameworks read files with Pillow, OpenCV, TensorFlow's or DALI's decoders. All of these make the same pixels of JPEG
and PNG; of WebP, BMP, TIFF and GIF one or another reads none, the first of several frames, or other pixels.
"""

import os
import random
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock

from PIL import Image

MOST = 2000
"""Images looked at; of a larger dataset a random choice, since decoding millions would take hours."""


MOST_PIXELS = 50_000_000
"""Of an image, as every worker has to decode it."""


_MANY_PIXELS = 10_000_000


_OTHER_FORMATS = ("BMP", "GIF", "TIFF", "WEBP")


_LARGE = Lock()
"""Held while an image of more than ``_MANY_PIXELS`` is decoded: one at a time fits into any memory."""


def broken_images(folder: Path, paths: Sequence[str], most: int = MOST) -> tuple[int, list[tuple[str, str]]]:
    """Return how many images were decoded, and which of them are broken, with the reason.

    Args:
        folder: that ``paths`` are relative to.
        paths: of JPEG or PNG files.
        most: how many to decode.
    """
    chosen = list(paths)
    if len(chosen) > most:
        # The same ones every time: an error that comes and goes cannot be found.
        chosen = sorted(random.Random(0).sample(chosen, most))  # noqa: S311 - no secret
    with threads() as pool:
        reasons = list(pool.map(lambda path: _why_broken(folder / path), chosen))
    return len(chosen), [(path, why) for path, why in zip(chosen, reasons, strict=True) if why]


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield threads that look at pictures: Pillow decodes outside the interpreter's lock.

    What Pillow warns of is a reason here, not a warning. Filters of warnings belong to the whole process, so that they
    are set around the threads: of two that set them by turns, one would restore the other's too early.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            yield pool


def _why_broken(path: Path) -> str | None:
    """Return what is wrong with an image; None if it decodes."""
    try:
        with _opened(path) as image:
            image.verify()
        # Verifying uses the file up; only decoding finds what was cut off.
        with _opened(path) as image:
            if reason := _unlike(image):
                return reason
            with _LARGE if image.width * image.height > _MANY_PIXELS else nullcontext():
                image.load()
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken byte leads to
        return _in_words(error, path)
    return None


def header(path: Path) -> tuple[tuple[int, int], str | None]:
    """Return width and height of an image by its first bytes, and what these show to be wrong; None for nothing."""
    try:
        with _opened(path) as image:
            return image.size, _unlike(image)
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken byte leads to
        return (0, 0), _in_words(error, path)


def _opened(path: Path) -> Image.Image:
    """Open an image file in one of the formats that all frameworks decode."""
    return Image.open(path, formats=("JPEG", "PNG"))


def _in_words(error: Exception, path: Path) -> str:
    """Return what a decoder raised on a file."""
    if "cannot identify" in str(error):
        return f"not a JPEG or PNG image{_other_format(path)}" if path.stat().st_size else "empty file"
    return str(error) or type(error).__name__


def _other_format(path: Path) -> str:
    """Return which other format a picture file has, and the next step; nothing for anything else."""
    try:
        with Image.open(path, formats=_OTHER_FORMATS) as image:
            return f" but {image.format}, which frameworks decode differently or not at all; save it as JPEG or PNG"
    except Exception:  # noqa: BLE001 - as above
        return ""


def _unlike(image: Image.Image) -> str | None:
    """Return why frameworks could not make the same pixels of an image; None if they can."""
    if image.width * image.height > MOST_PIXELS:
        return f"{image.width} x {image.height} pixels; images may have {MOST_PIXELS // 10**6} million"
    if image.mode == "CMYK":
        return "CMYK colours, which not every framework converts alike; convert it to RGB"
    deep = image.mode in _DEEP or any(";16" in str(tile) for tile in getattr(image, "tile", []))
    return "16 bits per value, which not every framework scales alike; convert it to 8 bits" if deep else None


_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
