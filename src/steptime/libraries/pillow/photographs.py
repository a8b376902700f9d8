"""Photographs by Pillow as bytes: decoded, cut at random, resized and flipped.

Images come from files, from tar shards, or as pixels that were decoded before (docs/loaders.md has the three forms).
"""

import io
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy

from steptime.worker.samples import read_index, read_sizes, scale_and_shift, undecodable
from steptime.worker.stored_images import DecodedImages, TarMembers, crops


def cropped(image: Any, size: Any, box: Any, flipped: bool) -> Any:
    """Return bytes (height, width, channels) of the rectangle ``box`` of a picture, resized to ``size``.

    The filter is Pillow's triangle, which takes in every pixel.

    Args:
        image: of Pillow.
        size: height and width of what is returned.
        box: left, top, width and height of the rectangle.
        flipped: whether left and right change places.
    """
    from PIL import Image

    left, top, width, height = (int(each) for each in box)
    part = image.crop((left, top, left + width, top + height))
    if (height, width) != tuple(size):
        # Not by the argument ``box``: its filter would see pixels outside of the rectangle.
        part = part.resize((size[1], size[0]), Image.BILINEAR)  # type: ignore[attr-defined]  # by the name that old ones know
    pixels = numpy.asarray(part)
    if flipped:
        pixels = pixels[:, ::-1]
    return pixels.reshape(size[0], size[1], -1)


class PhotographFiles(object):
    """The images of a dataset as crops in bytes, which are the same in every run (worker/stored_images.py).

    ``labels``
        int64, one for each image.
    ``channels``, ``size``
        Of a crop; the size is ``(height, width)``.
    ``scale``, ``shift``
        Float32 (channels, 1, 1), with which ``byte * scale + shift`` is normalised.
    """

    def __init__(self, dataset: Dict[str, Any], input_shape: Sequence[int], seed: int) -> None:
        """Read the index of ``dataset``; ``input_shape`` is the workload's, ``seed`` the job's.

        Raises ValueError when the index holds another number of images than the job gives.
        """
        self._transform = transform = dataset["transform"]
        paths, self.labels = read_index(dataset)
        self._sizes = read_sizes(dataset)
        self._seed = seed
        self.size = height, width = tuple(transform["size"])
        self.channels = int(numpy.prod(input_shape)) // (height * width)
        self.scale, self.shift = scale_and_shift(transform, self.channels)
        self._images = _SOURCES[dataset["form"]](dataset, paths, self._sizes, "L" if self.channels == 1 else "RGB")

    def __len__(self) -> int:
        return len(self.labels)

    def normalised(self, crop: Any, out: Any = None) -> Any:
        """Return a crop as float32 (channels, height, width), in ``out`` if it is given."""
        image = numpy.multiply(crop.transpose(2, 0, 1), self.scale, out=out)
        image += self.shift
        return image

    def boxes(self, epoch: int, indices: Any) -> Tuple[Any, Any]:
        """Return the rectangles and flips of samples, as ``crops`` does."""
        indices = numpy.asarray(indices)
        return crops(self._transform, self._sizes[indices], self._seed, epoch, indices)

    def crop(self, index: int, box: Any, flipped: bool) -> Any:
        """Return the crop of one sample, uint8 (height, width, channels).

        Raises ValueError, which names the file, when it cannot be decoded.
        """
        return self._images.cropped(index, self.size, box, flipped)

    def batch_crops(self, epoch: int, indices: Any) -> Iterator[Any]:
        """Yield the crop of each of a batch's samples, uint8 (height, width, channels).

        Raises ValueError, which names the file, when one cannot be decoded.
        """
        for index, box, flipped in zip(indices, *self.boxes(epoch, indices)):
            yield self.crop(index, box, flipped)


class _Files(object):
    """Every image is a file."""

    def __init__(self, _: Any, paths: List[str], sizes: Any, mode: str) -> None:
        self._paths = paths
        self._sizes = sizes
        self._mode = mode

    def cropped(self, index: int, size: Any, box: Any, flipped: bool) -> Any:
        path = self._paths[index]
        try:
            return _decoded(path, self._mode, self._sizes[index], (size, box, flipped))
        except Exception as error:  # decoders raise many types; whichever it is, the file must be named
            raise ValueError(undecodable(path, error)) from error


class _TarShards(object):
    """Every image is a file in a tar archive, whose place there is in the index."""

    def __init__(self, dataset: Dict[str, Any], _: Any, sizes: Any, mode: str) -> None:
        self._members = TarMembers(dataset)
        self._sizes = sizes
        self._mode = mode

    def cropped(self, index: int, size: Any, box: Any, flipped: bool) -> Any:
        try:
            file = io.BytesIO(self._members.read(index))
            return _decoded(file, self._mode, self._sizes[index], (size, box, flipped))
        except Exception as error:  # as of files
            why = str(error).partition(" <_io")[0]  # Pillow's name of what is not a file
            raise ValueError(self._members.fault(index, why)) from error


class _Decoded(object):
    """The pixels of every image lie in one large file."""

    def __init__(self, dataset: Dict[str, Any], _: Any, sizes: Any, mode: str) -> None:
        self._pixels = DecodedImages(dataset, sizes)
        self._mode = mode

    def cropped(self, index: int, size: Any, box: Any, flipped: bool) -> Any:
        from PIL import Image

        left, top, width, height = box
        part = self._pixels[index][top : top + height, left : left + width]
        image = Image.fromarray(part)
        if image.mode != self._mode:
            image = image.convert(self._mode)
        return cropped(image, size, (0, 0, width, height), flipped)


_SOURCES: Dict[str, Any] = {"image_folder": _Files, "tar_shards": _TarShards, "decoded": _Decoded}


def _decoded(file: Any, mode: str, expected: Any, cut: Tuple[Any, Any, bool]) -> Any:
    """Return the crop ``cut`` of an image file, decoded at its full size.

    Pillow and TensorFlow can decode a JPEG at half its size or less, MXNet cannot, and all loaders do the same work.

    Raises whatever Pillow does when the file cannot be decoded, ValueError when it is not of the expected size.
    """
    from PIL import Image

    with Image.open(file) as opened:
        image = opened.convert(mode)
    if image.size != tuple(expected):
        raise ValueError("it has %dx%d pixels, not %dx%d as in the index" % (image.size + tuple(expected)))
    return cropped(image, *cut)
