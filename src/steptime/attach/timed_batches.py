"""Batches that a library hands to the loop by an iterator of its own: Keras 3 on JAX, Ray Data, WebDataset, grain.

Keras' functions take them before the compiled step. Of Ray Data's workers nothing is seen here: they read for it.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from . import patches, process
from .batch_amount import NO_BATCH, BatchReader
from .compiled.jax_functions import evaluation_made_by
from .library_calls import request_begins, requests_of
from .object_numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def install_keras(module: Any) -> None:
    """Patch the making of the iterators of epochs, and of functions for evaluation, which return the weights, too."""
    for name in ("make_test_function", "make_predict_function"):
        evaluation_made_by(module.JAXTrainer, name)
    time_iterators(module.JAXEpochIterator, "_get_iterator", lambda iterator: iterator.data_adapter)


def install_ray(module: Any) -> None:
    """Patch the iterators over batches of a dataset, or of a worker's shard of it."""
    made_by: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def after(mark: Any, returned: bool) -> None:
        if returned:
            made_by[mark.result] = mark.given[0]

    name = "_iter_batches" if hasattr(module.DataIterator, "_iter_batches") else "iter_batches"
    patches.measure(module.DataIterator, name, lambda args, _: patches.CallMark(args[0]), after)
    time_iterators(module._IterableFromIterator, "__iter__", made_by.get)


def install_webdataset(module: Any) -> None:
    """Patch pipelines, of which one around a DataLoader makes batches anew; a DataLoader's workers prepare them."""
    worker = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", patches.never)
    time_iterators(module.DataPipeline, "__iter__", lambda pipeline: None if worker() else pipeline)


def install_grain(module: Any) -> None:
    """Patch the iterators that datasets of grain make, each of which asks others, also in threads of grain's own.

    They stay what they are, since a script saves their state.
    """
    recorder = process.recorder()
    datasets: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    kinds: set[type] = set()

    def after(mark: Any, returned: bool) -> None:
        if not returned:
            return
        iterator, kind = mark.result, type(mark.result)
        datasets[iterator] = mark.given[0]
        if kind not in kinds:
            kinds.add(kind)
            requests_of(kind, "__next__", datasets.__getitem__, patches.never, only=asks)

    def asks(iterator: Any) -> bool:
        return recorder.is_mine() and iterator in datasets

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        return patches.CallMark(args[0])

    if hasattr(module, "output_dataset_injector"):  # which wraps the making of iterators in each class of datasets
        patch = patches.Patch(module, "output_dataset_injector")
        inner = patch.original
        patch.put(lambda make: patches.named_after(make, patches.measured(patch, inner(make), before, after)))
        patches.measure(module.MapDataset, "__iter__", before, after)


def time_iterators(owner: Any, name: str, dataset: Any) -> None:
    """Have what ``owner.name`` returns iterate as requests to the loader of a ``dataset``, if it has one."""
    patch = patches.Patch(owner, name)
    inner = patch.original

    def make(self: Any) -> Any:
        made = inner(self)
        if not patch.on:
            return made
        batches = iter(made)  # as the caller does with it
        try:
            data = dataset(self)
            return batches if data is None else TimedBatches(patch, batches, number_of(data))
        except Exception as error:
            patch.fault(error)
            return batches

    patch.put(patches.named_after(inner, make))


class TimedBatches:
    """An iterator whose batches are requests to a loader."""

    def __init__(self, patch: patches.Patch, batches: Iterator[Any], source: int) -> None:
        recorder, reader = process.recorder(), BatchReader()

        def after(mark: Any, returned: bool) -> None:
            amount = reader.read(mark.result) if returned else NO_BATCH
            recorder.request_end(source, "input" if returned else "epoch", amount)

        self._next = patches.measured(patch, batches.__next__, request_begins(recorder), after)

    def __iter__(self) -> TimedBatches:
        return self

    @patches.unnoticed
    def __next__(self) -> Any:
        return self._next()
