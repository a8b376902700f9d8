"""Photographs by NVIDIA's DALI: files are read, decoded, cut, resized, flipped and normalised by its threads.

The order of the samples and the rectangles are the job's, as with every loader: DALI is fed paths, rectangles and
flips, and not asked for its own random numbers. Of a file it decodes no more than the rows down to the rectangle's last
one, which no other loader does.

On processors the pipeline needs no device. With a device, decoding is ``mixed``: it begins on the processor and ends on
the device, where all the rest is done; that was never run.
"""

import collections
import itertools
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy

from steptime.worker.process_context import Job
from steptime.worker.samples import PREFETCHED_PER_HELPER, read_index, read_sizes, undecodable
from steptime.worker.stored_images import crops

_DRAWN_TOGETHER = 16
"""Batches whose rectangles are drawn by one call, which costs as much for one batch as for several."""


class DaliPhotographs(object):
    """An endless iterator of ``(inputs, labels)``: a tensor of DALI, float32, and int64 of numpy, (batch,).

    ``ahead``
        How many batches may be ready before they are asked for.
    """

    def __init__(self, job: Job, order: Iterator[Any], innermost: bool, device_id: Optional[int] = None) -> None:
        """Build the pipeline.

        Args:
            job: the job; its ``processes`` are DALI's threads.
            order: the worker's batches, as ``(epoch, indices)`` without end.
            innermost: whether channels come last, else first.
            device_id: of the CUDA device; None for processors alone.

        Raises ValueError when the dataset does not hold what the job asks for.
        """
        loader, workload = job["loader"], job["workload"]
        self._dataset = dataset = loader["dataset"]
        self._seed = job["seed"]
        self._plan = self._planned(order)
        self._paths, self._labels = read_index(dataset)
        self._encoded = _encoded(self._paths)
        self._sizes = read_sizes(dataset)
        self._graph = _Graph(dataset["transform"], workload["input_shape"][0], innermost, device_id)
        self._begun: "collections.deque[Any]" = collections.deque()
        helpers = loader["processes"]
        # With a depth of one, a batch is begun when it is asked for.
        depth = max(1, PREFETCHED_PER_HELPER * helpers)
        self.ahead = depth if helpers else 0
        self._pipeline = self._graph.build(self._feed, job["batch_per_worker"], max(1, helpers), depth)

    def __iter__(self) -> "DaliPhotographs":
        return self

    def __next__(self) -> Tuple[Any, Any]:
        """Return the next batch, as ``take`` does."""
        return self.take()

    def take(self, stream: Any = None) -> Tuple[Any, Any]:
        """Return the next batch; with a CUDA stream, its values are there for what is put on the stream next.

        Raises ValueError, which names the file, when one cannot be decoded.
        """
        try:
            (inputs,) = self._pipeline.run() if stream is None else self._pipeline.run(cuda_stream=stream)
        except RuntimeError as error:
            fault = self._fault()
            if fault:
                raise ValueError(fault) from error
            raise
        _, indices, _ = self._begun.popleft()
        return inputs.as_tensor(), self._labels[indices]

    def _feed(self) -> Tuple[Any, ...]:
        """Return what the pipeline is fed for its next batch: paths, corners, sizes and flips."""
        epoch, indices, boxes, flips = next(self._plan)
        fed = self._fed(indices, boxes, flips)
        self._begun.append((epoch, indices, fed))  # DALI reads these arrays until the batch is there
        return fed

    def _planned(self, order: Iterator[Any]) -> Iterator[Tuple[Any, ...]]:
        """Yield the epoch, indices, rectangles and flips of each batch; those of several are drawn at once."""
        for epoch, batches in itertools.groupby(order, key=lambda pair: pair[0]):
            # mypy infers no lambda with a default.
            for together in iter(
                lambda batches=batches: list(itertools.islice(batches, _DRAWN_TOGETHER)),  # type: ignore[misc]
                [],
            ):
                indices = numpy.stack([chosen for _, chosen in together])
                boxes, flips = self._crops(epoch, indices.ravel())
                shape = indices.shape
                for batch in zip(indices, boxes.reshape(shape + (4,)), flips.reshape(shape)):
                    yield (epoch,) + batch

    def _crops(self, epoch: int, indices: Any) -> Tuple[Any, Any]:
        return crops(self._dataset["transform"], self._sizes[indices], self._seed, epoch, indices)

    def _fed(self, indices: Any, boxes: Any, flips: Any) -> Tuple[Any, ...]:
        return (
            self._encoded[indices],
            numpy.ascontiguousarray(boxes[:, :2]),
            numpy.ascontiguousarray(boxes[:, 2:]),
            flips.astype(numpy.int32),
        )

    def _fault(self) -> Optional[str]:
        """Return which file of the batches in the pipeline cannot be decoded, and why; None if all can.

        DALI does not say which file it was, and a pipeline that failed is of no more use: each file is tried again.
        """
        for epoch, indices, _ in self._begun:
            for index in indices:
                alone = numpy.array([index])
                fed = self._fed(alone, *self._crops(epoch, alone))
                try:
                    self._graph.build(_constantly(fed), 1, 1, 1).run()
                except RuntimeError as error:
                    said = str(error).partition("encountered:")[2].strip().splitlines()
                    return undecodable(self._paths[index], said[0] if said else error)
        return None


class _Graph(object):
    """The operators of a pipeline, to be built for batches of any size."""

    def __init__(self, transform: Dict[str, Any], channels: int, innermost: bool, device_id: Optional[int]) -> None:
        self._size = transform["size"]
        self._mean = [255.0 * each for each in transform["mean"]]
        self._std = [255.0 * each for each in transform["std"]]
        self._grey = channels == 1
        self._layout = "HWC" if innermost else "CHW"
        self._device_id = device_id

    def build(self, feed: Callable[[], Tuple[Any, ...]], batch: Any, threads: int, depth: int) -> Any:
        """Return a pipeline that is fed by a function without arguments and makes ``depth`` batches ahead."""
        from nvidia.dali import fn, types
        from nvidia.dali.pipeline import Pipeline

        pipeline = Pipeline(
            batch_size=batch, num_threads=threads, device_id=self._device_id, prefetch_queue_depth=depth
        )
        with pipeline:
            paths, corners, sides, flips = fn.external_source(source=feed, num_outputs=4, batch=True, no_copy=True)
            images = fn.decoders.image_slice(
                fn.io.file.read(paths),
                corners,
                sides,
                axis_names="WH",
                normalized_anchor=False,
                normalized_shape=False,
                device="cpu" if self._device_id is None else "mixed",
                output_type=types.GRAY if self._grey else types.RGB,
                adjust_orientation=False,  # no other loader turns an image by its Exif data
            )
            # A triangle that takes in every pixel where it shrinks, as that of Pillow.
            images = fn.resize(images, size=self._size, interp_type=types.INTERP_LINEAR, antialias=True)
            inputs = fn.crop_mirror_normalize(
                images,
                mirror=flips,
                mean=self._mean,
                std=self._std,
                dtype=types.FLOAT,
                output_layout=self._layout,
            )
            pipeline.set_outputs(inputs)
        pipeline.build()
        return pipeline


def _constantly(value: Any) -> Callable[[], Any]:
    """Return a function without arguments that returns ``value``: DALI gives its own to one that could take any."""

    def feed() -> Any:
        return value

    return feed


def _encoded(paths: List[str]) -> Any:
    """Return the paths as bytes that end in zeros, uint8 (paths, length of the longest and one), as DALI reads them."""
    table = numpy.array([os.fsencode(path) + b"\0" for path in paths])
    width = max(len(os.fsencode(path)) for path in paths) + 1
    return table.astype("S%d" % width).view(numpy.uint8).reshape(len(paths), width)
