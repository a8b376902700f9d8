"""Photographs by Pillow as bytes: decoded, resized, cropped and flipped; the caller draws the random numbers."""

import os

import numpy


def decoded(path, channels, shorter, draft=False):
    """Return the image of a file, grey for one channel and RGB else, with its shorter side ``shorter`` pixels long.

    With ``draft``, a JPEG is decoded at an eighth, a quarter or half its size where that is still large enough.

    Raises ValueError, naming the file, when it cannot be decoded.
    """
    from PIL import Image

    mode = "L" if channels == 1 else "RGB"
    try:
        with Image.open(path) as file:
            if draft:
                file.draft(mode, (shorter, shorter))
            image = file.convert(mode)
        side = min(image.size)
        if side == shorter:
            return image
        size = [max(shorter, round(length * shorter / float(side))) for length in image.size]
        return image.resize(tuple(size), Image.BILINEAR)
    except Exception as error:  # decoders raise many types; whichever it is, the file must be named
        raise ValueError("%s cannot be decoded: %s" % (os.path.abspath(path), error)) from error


def cropped(image, size, corner, flipped):
    """Return bytes (height, width, channels) of the part of ``image`` that begins at ``corner``.

    Args:
        image: of ``decoded``.
        size: height and width of the part.
        corner: its left and its top.
        flipped: whether left and right change places.
    """
    (height, width), (left, top) = size, corner
    pixels = numpy.asarray(image.crop((left, top, left + width, top + height)))
    if flipped:
        pixels = pixels[:, ::-1]
    return pixels.reshape(height, width, -1)


def cropped_by_chances(image, size, flip, chances):
    """Return a part as ``cropped`` does, by three numbers in [0, 1): for its left, its top and its flip."""
    height, width = size
    left = int(chances[0] * (image.size[0] - width + 1))
    top = int(chances[1] * (image.size[1] - height + 1))
    return cropped(image, size, (left, top), flip and chances[2] < 0.5)  # noqa: PLR2004 - what the protocol says


def cropped_from_stream(image, size, flip, stream):
    """Return a part as ``cropped`` does, with left, top and flip drawn from a ``random.Random``."""
    height, width = size
    left = stream.randint(0, image.size[0] - width)
    top = stream.randint(0, image.size[1] - height)
    return cropped(image, size, (left, top), flip and stream.random() < 0.5)  # noqa: PLR2004 - what the protocol says
