"""Batches as torch tensors: synthetic ones, and torch's own input pipeline over a dataset on disk."""

import itertools
import warnings

import torch
from torch.utils.data import DataLoader, Sampler

from steptime.worker.batches import synthetic_batches
from steptime.worker.loaders.torch_images import ArrayBatches, PhotoBatches
from steptime.worker.loaders.torch_prefetching import on_device
from steptime.worker.sampling import batch_indices

_PER_HELPER = 2
"""Batches that torch's loader asks of every helper process beforehand."""


def open_batches(job, place, device, channels_last):
    """Return an endless iterator of ``(inputs, targets)`` on ``device``, as the job's loader says.

    Inputs are float32 (batch,) + input shape; targets are int64 class indices, or the inputs in the shape of the
    output for a mean-squared-error workload.

    Args:
        job: the job.
        place: of this worker.
        device: a ``torch.device``.
        channels_last: whether images lie in memory with their channels innermost.

    Raises ValueError when the dataset does not hold what the job says or is too small for one batch, and RuntimeError
    from ``next`` when a file cannot be decoded.
    """
    if job["loader"]["kind"] == "synthetic":
        return _synthetic(job, place, device, channels_last)
    return _native(job, place, device, channels_last)


def batches_ahead(loader, device):
    """Return how many batches ``open_batches`` may hold ready, for a job's ``loader`` and a ``torch.device``."""
    if loader["kind"] == "synthetic":
        return 0
    on_their_way = 1 if device.type == "cuda" else 0
    helpers = loader["processes"] if loader["dataset"]["form"] == "image_folder" else 0
    return on_their_way + _PER_HELPER * helpers


def _synthetic(job, place, device, channels_last):
    workload, settings = job["workload"], job["loader"]
    pairs = synthetic_batches(workload, job["batch_per_worker"], settings["distinct_batches"], job["seed"], place.rank)
    layout = torch.channels_last if channels_last and len(workload["input_shape"]) > 1 else torch.contiguous_format
    return itertools.cycle(
        [
            (torch.from_numpy(inputs).to(device, memory_format=layout), torch.from_numpy(targets).to(device))
            for inputs, targets in pairs
        ]
    )


def _native(job, place, device, channels_last):
    settings, workload = job["loader"], job["workload"]
    plan = batch_indices(
        settings["dataset"]["samples"], job["batch_per_worker"], job["seed"], place.rank, place.workers
    )
    kind = {"arrays": ArrayBatches, "image_folder": PhotoBatches}[settings["dataset"]["form"]]
    dataset = kind(settings["dataset"], workload["input_shape"], channels_last, job["seed"])
    if device.type == "cuda":
        # A device normalises by itself: bytes are a quarter of the floats that would have to be copied.
        finish = dataset.finish_on(device)
        batches = on_device(_fetch(dataset, plan, settings["processes"], pin=True), device, finish)
    else:
        dataset.finish = dataset.finish_on(device)
        batches = _fetch(dataset, plan, settings["processes"], pin=False)
    if workload["loss"] == "mean_squared_error":
        shape = [-1] + list(workload["layers"][-1]["output_shape"])
        return ((inputs, inputs.reshape(shape)) for inputs, _ in batches)
    return iter(batches)


def _fetch(dataset, plan, processes, pin):
    """Return the planned batches in their order, made by ``processes`` helpers ahead of the training.

    The plan never ends, so that the helpers persist and none of them runs dry between two epochs. Arrays in memory
    need no helpers: a gather is faster than handing its result from one process to another.
    """
    if isinstance(dataset, ArrayBatches):
        batches = (dataset[entry] for entry in plan)
        return ((inputs.pin_memory(), targets.pin_memory()) for inputs, targets in batches) if pin else batches
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # the study chose the number
        ahead = {"prefetch_factor": _PER_HELPER} if processes else {}
        loader = DataLoader(
            dataset, batch_size=None, sampler=_Plan(plan), num_workers=processes, pin_memory=pin, **ahead
        )
        return iter(loader)


class _Plan(Sampler):
    """An endless iterator as torch's sampler; an entry is a whole batch of indices."""

    def __init__(self, plan):
        self._plan = plan

    def __iter__(self):
        return self._plan
