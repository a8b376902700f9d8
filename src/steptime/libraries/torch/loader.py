"""Batches as torch tensors: synthetic ones, and torch's own input pipeline over a dataset on disk.

A dataset's items are whole batches, so that torch's workers hand over one object per batch. On a CUDA device a batch
is copied while the batch before it is trained.
"""

import itertools
import warnings
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, TokenSamples, worker_order
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.samples import PREFETCHED_PER_HELPER, read_arrays, scale_and_shift, synthetic_batches


def on_device(batches: Iterator[Any], device: Any, finish: Any) -> Iterator[Tuple[Any, Any]]:
    """Yield ``(finish(images), labels)`` of pinned ``batches`` on ``device``, one batch ahead of the training.

    Copying and normalising run on a stream of their own, so that they share no time with the training unless the
    device is full.
    """
    side = torch.cuda.Stream(device)
    ahead = _send(next(batches), device, finish, side)
    while True:
        training = torch.cuda.current_stream(device)
        training.wait_stream(side)
        ready = ahead
        for tensor in ready:
            # The memory was taken on the side stream; without this it could be reused before training has read it.
            tensor.record_stream(training)
        ahead = _send(next(batches), device, finish, side)
        yield ready


def _send(batch: Any, device: Any, finish: Any, side: Any) -> Any:
    images, labels = batch
    with torch.cuda.stream(side):
        return finish(images.to(device, non_blocking=True)), labels.to(device, non_blocking=True)


class BrokenBatch(object):
    """Stands in for a batch of which a file cannot be decoded.

    An error that a helper raises comes with the helper's traceback in its message; this one is raised in training.
    """

    def __init__(self, message: str) -> None:
        self.message = message


def _whole(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches; raise ValueError, which names the file, in place of a broken one."""
    for batch in batches:
        if isinstance(batch, BrokenBatch):
            raise ValueError(batch.message)
        yield batch


class _ImageBatches(Dataset):
    """A dataset that is asked for ``(epoch, indices)`` and answers with a batch ``(images, labels)``.

    ``finish`` makes the workload's inputs of byte images; None leaves them bytes, for a device to finish.
    """

    def __init__(
        self, transform: Dict[str, Any], input_shape: Sequence[int], channels: int, channels_last: bool
    ) -> None:
        self._transform = transform
        self._channels = channels
        self._flat = len(input_shape) == 1
        self._channels_last = channels_last and not self._flat
        self.finish: Optional[Callable[[Any], Any]] = None

    def finish_on(self, device: Any) -> Callable[[Any], Any]:
        """Return a callable that makes the workload's inputs of byte images on ``device``."""
        scale, shift = scale_and_shift(self._transform, self._channels)
        return _Finish(torch.from_numpy(scale).to(device), torch.from_numpy(shift).to(device), self._flat)

    def __getitem__(self, entry: Any) -> Any:
        """Return the batch, or a ``BrokenBatch``."""
        epoch, indices = entry
        try:
            images = self._bytes(epoch, indices)
        except ValueError as error:
            return BrokenBatch(str(error))
        labels = self._labels.index_select(0, torch.from_numpy(indices))
        return (images if self.finish is None else self.finish(images)), labels


class _Finish(object):
    """Normalises byte images, which keep their layout in memory, and flattens them where the workload wants that."""

    def __init__(self, scale: Any, shift: Any, flat: bool) -> None:
        self._scale = scale
        self._shift = shift
        self._flat = flat

    def __call__(self, images: Any) -> Any:
        inputs = images.to(torch.float32).mul_(self._scale).add_(self._shift)
        return inputs.flatten(1) if self._flat else inputs


class ArrayBatches(_ImageBatches):
    """The whole set as one tensor, in the layout in which it is trained: a batch is one gather."""

    def __init__(self, dataset: Dict[str, Any], input_shape: Sequence[int], channels_last: bool, _: Any) -> None:
        images, labels = read_arrays(dataset, input_shape)
        super(ArrayBatches, self).__init__(dataset["transform"], input_shape, images.shape[1], channels_last)
        if self._channels_last:
            images = numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))
        self._images = torch.from_numpy(images)
        self._labels = torch.from_numpy(labels)

    def _bytes(self, _: int, indices: Any) -> Any:
        images = self._images.index_select(0, torch.from_numpy(indices))
        return images.permute(0, 3, 1, 2) if self._channels_last else images


class PhotoBatches(_ImageBatches):
    """Files decoded, resized, cropped and flipped by Pillow."""

    def __init__(self, dataset: Dict[str, Any], input_shape: Sequence[int], channels_last: bool, seed: int) -> None:
        self._files = files = PhotographFiles(dataset, input_shape, seed)
        super(PhotoBatches, self).__init__(dataset["transform"], input_shape, files.channels, channels_last)
        self._labels = torch.from_numpy(files.labels)

    def _bytes(self, epoch: int, indices: Any) -> Any:
        batch = numpy.empty((len(indices),) + self._files.size + (self._channels,), dtype=numpy.uint8)
        for crop, row in zip(self._files.batch_crops(epoch, indices), batch):
            row[...] = crop
        images = torch.from_numpy(batch).permute(0, 3, 1, 2)  # Pillow's channels are innermost already
        return images if self._channels_last else images.contiguous()


def open_torch_batches(job: Job, context: ProcessContext, device: Any, channels_last: bool) -> Batches:
    """Return the ``Batches`` of a job, ``(inputs, targets)`` on ``device``.

    Inputs are float32 (batch,) + input shape; targets are int64 class indices, or the inputs in the shape of the
    output for a mean-squared-error workload.

    Args:
        job: the job.
        context: of this worker.
        device: a ``torch.device``.
        channels_last: whether images lie in memory with their channels innermost.

    Raises ValueError when the dataset lacks what the job asks for or is too small for one batch and, from ``next``,
    when a file cannot be decoded.
    """
    settings, workload = job["loader"], job["workload"]
    shape = workload["input_shape"]
    if settings["kind"] == "synthetic":
        layout = torch.channels_last if channels_last and len(shape) > 1 else torch.contiguous_format
        pairs = [
            (torch.from_numpy(inputs).to(device, memory_format=layout), torch.from_numpy(targets).to(device))
            for inputs, targets in synthetic_batches(job, context.rank)
        ]
        return Batches(itertools.cycle(pairs))
    order = worker_order(job, context.rank, context.workers)
    if settings["kind"] == "dali":
        return _dali_batches(job, order, device, channels_last)
    if settings["dataset"]["form"] == "tokens":
        sequences = TokenSamples(settings["dataset"], shape)
        made = (sequences.batch(chosen) for _, chosen in order)
        return Batches(tuple(torch.from_numpy(each).to(device) for each in pair) for pair in made)
    folder = settings["dataset"]["form"] != "arrays"
    dataset = (PhotoBatches if folder else ArrayBatches)(settings["dataset"], shape, channels_last, job["seed"])
    ahead = PREFETCHED_PER_HELPER * settings["processes"] if folder else 0
    finish = dataset.finish_on(device)
    if device.type == "cuda":
        # A device normalises by itself: bytes are a quarter of the floats that would have to be copied.
        return Batches(
            _fetch(dataset, order, settings["processes"], pin=True),
            ahead + 1,
            send=lambda pinned: _with_targets(workload, on_device(pinned, device, finish)),
        )
    dataset.finish = finish
    return Batches(_with_targets(workload, _fetch(dataset, order, settings["processes"], pin=False)), ahead)


def _with_targets(workload: Dict[str, Any], batches: Iterator[Any]) -> Iterator[Tuple[Any, Any]]:
    """Return batches whose targets are their inputs, in the shape of the output, where the loss compares them."""
    if workload["loss"] != "mean_squared_error":
        return batches
    outputs = [-1] + list(workload["layers"][-1]["output_shape"])
    return ((inputs, inputs.reshape(outputs)) for inputs, _ in batches)


def _dali_batches(job: Job, order: Iterator[Any], device: Any, channels_last: bool) -> Batches:
    """Return the ``Batches`` of DALI's pipeline, whose tensors are torch's without a copy."""
    from steptime.libraries.dali.photographs import DaliPhotographs

    on_device = device.type == "cuda"
    source = DaliPhotographs(job, order, channels_last, (device.index or 0) if on_device else None)

    def batches() -> Iterator[Tuple[Any, Any]]:
        while True:
            stream = torch.cuda.current_stream(device) if on_device else None
            images, labels = source.take(stream)
            inputs = torch.from_dlpack(images)
            if channels_last:
                inputs = inputs.permute(0, 3, 1, 2)
            yield inputs, torch.from_numpy(labels).to(device)

    return Batches(_with_targets(job["workload"], batches()), source.ahead)


def _fetch(dataset: Any, plan: Any, processes: int, pin: bool) -> Iterator[Any]:
    """Return the planned batches in their order, made by ``processes`` helpers ahead of the training.

    The plan never ends, so that the helpers persist and none of them runs dry between two epochs. Arrays in memory
    need no helpers: a gather is faster than handing its result from one process to another.
    """
    if isinstance(dataset, ArrayBatches):
        batches = (dataset[entry] for entry in plan)
        return ((inputs.pin_memory(), targets.pin_memory()) for inputs, targets in batches) if pin else batches
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # the study chose the number
        ahead = {"prefetch_factor": PREFETCHED_PER_HELPER} if processes else {}
        loader = DataLoader(
            dataset, batch_size=None, sampler=_Plan(plan), num_workers=processes, pin_memory=pin, **ahead
        )
        return _whole(iter(loader))


class _Plan(Sampler):
    """An endless iterator as torch's sampler; an entry is a whole batch of indices."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[Any]:
        return self._plan
