"""Batches as MXNet arrays: synthetic ones, and MXNet's own input pipeline over a dataset on disk."""

import functools
import os
import threading
from typing import Any, Callable, Dict, Generator, Iterator, List, Tuple

import mxnet
import numpy

from steptime.worker.batches import Batches, open_batches, sends_bytes
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.samples import PREFETCHED_PER_HELPER, read_index, read_sizes, undecodable
from steptime.worker.stored_images import crops, damaged, require_whole

_BILINEAR, _BY_AREA = 1, 3
_START_OF_SCAN = b"\xff\xda"
_END_OF_IMAGE = b"\xff\xd9"
_JPEG = b"\xff\xd8"


def open_mxnet_batches(job: Job, context: ProcessContext, mx_device: Any) -> Batches:
    """Return the ``Batches`` of a job, ``(inputs, targets)``, two NDArrays of float32 on ``mx_device``.

    Class indices are float32 too, as MXNet's own iterators give them. To a GPU images go as bytes, those of files from
    pinned memory; MXNet's engine copies on a stream of its own.

    Args:
        job: the job.
        context: of this worker: its rank and how many there are.
        mx_device: MXNet's device.

    Raises ValueError when a batch does not fit the worker's share of the dataset or the dataset does not hold what
    the job says and, from ``next``, when a file cannot be decoded.
    """

    def put(inputs: Any, targets: Any) -> Tuple[Any, Any]:
        own = mxnet.nd.array(inputs, ctx=mx_device)
        return own, own if targets is inputs else mxnet.nd.array(targets, ctx=mx_device, dtype="float32")

    def open_folder(order: Iterator[Any]) -> Batches:
        loader = job["loader"]
        batches = _folder_batches(job, order, mx_device)
        send = functools.partial(_sent, loader["dataset"]["transform"], mx_device) if sends_bytes(job) else None
        return Batches(batches, PREFETCHED_PER_HELPER * loader["processes"], batches.close, send)

    def finisher(scale: Any, shift: Any, shape: Any) -> Callable[[Any, Any], Tuple[Any, Any]]:
        scale, shift = (mxnet.nd.array(each[None], ctx=mx_device) for each in (scale, shift))
        squared = job["workload"]["loss"] == "mean_squared_error"

        def send(pixels: Any, labels: Any) -> Tuple[Any, Any]:
            pixels = mxnet.nd.array(pixels, ctx=mx_device, dtype="uint8").astype("float32")
            inputs = (pixels * scale + shift).reshape(shape)
            return inputs, inputs if squared else mxnet.nd.array(labels, ctx=mx_device, dtype="float32")

        return send

    return open_batches(job, context.rank, context.workers, put, open_folder, finisher=finisher)


def _sent(transform: Dict[str, Any], mx_device: Any, batches: Any) -> Iterator[Tuple[Any, Any]]:
    """Yield batches of bytes (batch, height, width, channels) as normalised ones on the device."""
    for pixels, targets in batches:
        yield _normalised(pixels.as_in_context(mx_device), transform), targets.as_in_context(mx_device)


def _normalised(pixels: Any, transform: Dict[str, Any]) -> Any:
    """Return a batch of bytes as float32 inputs, channels first, where the bytes lie."""
    tensor = mxnet.nd.image.to_tensor(pixels)
    return mxnet.nd.image.normalize(tensor, tuple(transform["mean"]), tuple(transform["std"]))


def _folder_batches(job: Job, order: Iterator[Any], mx_device: Any) -> Generator[Any, None, None]:
    """Read, decode and augment images by gluon's data loader, with threads where the job allows helpers.

    MXNet decodes and resizes outside Python's lock, so that threads do not wait for each other and no batch has to
    be copied between processes.
    """
    loader = job["loader"]
    source = _SOURCES[loader["dataset"]["form"]]
    files = source(loader["dataset"], job["workload"]["input_shape"][0], as_bytes=sends_bytes(job))
    helpers = loader["processes"]
    data_loader = mxnet.gluon.data.DataLoader(
        files,
        batch_sampler=_with_crops(loader["dataset"], order, job["seed"]),
        batchify_fn=files.batch,
        num_workers=helpers,
        prefetch=PREFETCHED_PER_HELPER * helpers,
        thread_pool=True,
        auto_reload=False,
        pin_memory=mx_device.device_type == "gpu",
        pin_device_id=mx_device.device_id,
    )
    yield from data_loader


def _with_crops(dataset: Dict[str, Any], order: Iterator[Any], seed: int) -> Iterator[List[Any]]:
    """Give each sample of a batch its rectangle and its flip."""
    sizes, transform = read_sizes(dataset), dataset["transform"]
    for epoch, indices in order:
        boxes, flips = crops(transform, sizes[indices], seed, epoch, indices)
        yield list(zip(indices.tolist(), boxes.tolist(), flips.tolist()))


class _ImageFiles(object):
    """A folder of images as a gluon dataset: an item is an augmented image as bytes, and its class."""

    def __init__(self, dataset: Dict[str, Any], channels: int, *, as_bytes: bool) -> None:
        self._paths, self._labels = read_index(dataset)
        transform = dataset["transform"]
        self._colour = channels != 1
        self._size = transform["size"]
        self._transform = None if as_bytes else transform

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, item: Any) -> Tuple[Any, Any]:
        """Return ``(height, width, channels)`` bytes and the label of ``(index, box, flipped)``."""
        index, box, flipped = item
        try:
            content, label = self._opened(index)
            pixels = self._cropped(content, box)
        except Exception as error:  # whatever the decoder throws, the file must be named
            # MXNet's own errors come with a stack of C++, in front of the cause or behind it.
            said = str(error).splitlines() or [type(error).__name__]
            raise ValueError(self._fault(index, said[-1] if said[0].startswith("Traceback") else said[0])) from error
        return pixels[:, ::-1] if flipped else pixels, label

    def _opened(self, index: int) -> Tuple[bytes, Any]:
        """Return an image file's bytes and its label."""
        with open(self._paths[index], "rb") as file:
            return file.read(), self._labels[index]

    def _fault(self, index: int, why: object) -> str:
        """Return the message about an image that cannot be decoded."""
        return undecodable(self._paths[index], why)

    def batch(self, items: List[Any]) -> Tuple[Any, Any]:
        """Return the items as a batch, normalised and with channels first or in bytes, and their labels."""
        pixels = mxnet.nd.array(numpy.stack([pixels for pixels, _ in items]), dtype="uint8")
        inputs = pixels if self._transform is None else _normalised(pixels, self._transform)
        return inputs, mxnet.nd.array([label for _, label in items])

    def _cropped(self, content: bytes, box: Any) -> Any:
        # OpenCV, which MXNet decodes with, fills what is missing of a cut file with grey, silently.
        if content.startswith(_JPEG) and content.rfind(_END_OF_IMAGE) < content.rfind(_START_OF_SCAN):
            raise ValueError("it ends before its image does, after %d bytes" % len(content))
        image = mxnet.image.imdecode(content, flag=int(self._colour))
        left, top, width, height = box
        if top + height > image.shape[0] or left + width > image.shape[1]:
            raise ValueError("it has %dx%d pixels, unlike in the index" % image.shape[1::-1])
        part = image[top : top + height, left : left + width]
        down, across = self._size
        if (height, width) != (down, across):
            # By area: MXNet's bilinear filter looks at four pixels, however many shrink into one.
            shrinks = height >= down and width >= across
            part = mxnet.image.imresize(part, across, down, interp=_BY_AREA if shrinks else _BILINEAR)
        return part.asnumpy()


class _ImageRecords(_ImageFiles):
    """The records of a RecordIO file by their numbers, as ``MXIndexedRecordIO`` reads them.

    ``ImageRecordIter``, MXNet's iterator in C++, draws rectangles of its own and cannot be given any.
    """

    def __init__(self, dataset: Dict[str, Any], channels: int, *, as_bytes: bool) -> None:
        super(_ImageRecords, self).__init__(dataset, channels, as_bytes=as_bytes)
        require_whole(dataset)
        self._file = os.path.join(dataset["root"], "images.rec")
        places = os.path.join(dataset["root"], "images.idx")
        try:
            self._records = mxnet.recordio.MXIndexedRecordIO(places, self._file, "r")
        except ValueError as error:
            raise ValueError(damaged(places, error)) from error
        # A reader has one position, which helpers share as they are threads; reading is short against decoding.
        self._alone = threading.Lock()

    def _opened(self, index: int) -> Tuple[bytes, Any]:
        with self._alone:
            record = self._records.read_idx(index)
        if record is None:
            raise ValueError("%s ends before it" % self._file)
        header, content = mxnet.recordio.unpack(record)
        return content, int(header.label)

    def _fault(self, index: int, why: object) -> str:
        return damaged(self._file, "its record %d cannot be decoded: %s" % (index, why))


_SOURCES = {"image_folder": _ImageFiles, "recordio": _ImageRecords}
